"""`motet serve`: sessions behind HTTP, in the KServe v2 inference protocol; imports uvicorn and starlette.

    request → connection.py (headers, size and time limits) → application.py (routes) → protocol.py (tensors)
            → batching.py (queue, joined calls) → Session.submit → protocol.py → response
"""
