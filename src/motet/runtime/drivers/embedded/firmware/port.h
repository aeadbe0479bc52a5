/* What a processor and a board provide to the agent. */
#include "protocol.h"

extern volatile struct mailbox motet_mailbox;

/* Registers of the caller of `enter`, to which `leave` returns. */
extern uintptr_t motet_context;

struct call { uintptr_t buffers, sizes, tasks, scratch; };

/* Calls entry(buffers, sizes, 0, tasks, scratch); what the last fault, time-out or abort left in `status`, else OK. */
int enter(uintptr_t entry, const struct call *call);

void port_start(void);          /* clock, interrupts */
void port_sleep(void);          /* until a byte is received; ends in about half a second, to find requests of debuggers */
uint64_t port_ticks(void);
uint64_t port_instructions(void);
void port_synchronise(void);    /* makes written code visible to fetches */

int serial_byte(void);          /* the next byte, or -1 */
void serial_send(uint8_t byte);

/* Called by interrupts: whether the running kernel must end, and why. */
int agent_verdict(uint64_t now);
void agent_fault(uint64_t cause, uint64_t pc, uint64_t value, int status);
int agent_is_running(void);
void agent_main(void) __attribute__((noreturn));
