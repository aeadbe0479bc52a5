"""motet inspect --html: one self-contained page that shows what a program does.

    binding.py    which device of this machine, or of a trace, each of the program's is, and its rates
    model.py      functions as operations and values: what the page is about
    prediction.py when each operation would run: a simulation of commands, waves and queues
    measured.py   when it did run: a trace, matched with the operations
    layered.py    where the nodes of a graph go
    graph.py, timeline.py, memory.py, tables.py, roofline.py    the parts of the page
    page.py       the page, from `page.html`, `page.css` and `page.js`
"""
