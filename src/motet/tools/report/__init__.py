"""motet inspect --html: one self-contained page that shows how a program runs.

    binding.py    the device of this machine, or of a trace, for each of the program's devices, and its rates
    model.py      functions as operations and values
    prediction.py when each operation would run: a simulation of commands, waves and queues
    measured.py   when it ran: a trace, matched with the operations
    layered.py    the layout of graphs
    graph.py, timeline.py, memory.py, tables.py, roofline.py    the parts of the page
    page.py       the page, from `page.html`, `page.css` and `page.js`
"""
