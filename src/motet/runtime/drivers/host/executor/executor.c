/* The host's executor: thread pool, executor of schedules, and the call from Python. The Makefile compiles it to one
   object for each architecture (../support-*.o), contained in the package, so that the runtime needs neither a compiler
   nor a compiled extension. Its parts are one unit of compilation, so that what they share is not exported. */
#include "pool.c"
#include "commands.c"
#include "calls.c"

/* What the object was made from; no part of what is loaded. */
__asm__(".pushsection .motet.sources\n.ascii \"" SOURCES "\"\n.popsection");
