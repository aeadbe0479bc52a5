/* RISC-V: start, traps, the CLINT's timer as clock, and a 16550 UART behind a PLIC. Sources: RISC-V Privileged
   Architecture, RISC-V Platform-Level Interrupt Controller. */
#include "port.h"

#define MTIME (*(volatile uint64_t *)(CLINT + 0xbff8))
#define MTIMECMP (*(volatile uint64_t *)(CLINT + 0x4000))
#define UART_REGISTER(number) (*(volatile uint8_t *)(UART + (number)))
#define PLIC_REGISTER(offset) (*(volatile uint32_t *)(PLIC + (offset)))
#define PLIC_CLAIM PLIC_REGISTER(0x200004)
#define TIMED 0x80              /* of mie */
#define EXTERNAL 0x800
#define ENABLED 8               /* of mstatus */
#define PERIOD (CLOCK / 500)
#define READ(name) ({ uintptr_t value; __asm__ volatile("csrr %0, " #name : "=r"(value)); value; })

extern void leave(void);
extern char motet_bss[], motet_bss_end[];
uintptr_t motet_context, motet_verdict;

__attribute__((used)) void start_in_c(void) {
    for (char *at = motet_bss; at < motet_bss_end; at++)
        *(volatile char *)at = 0;
    agent_main();
}

/* Traps return to `leave` if they end the kernel. */
static void end_kernel(int status) {
    motet_verdict = (uintptr_t)status;
    __asm__ volatile("csrw mepc, %0" ::"r"(leave));
}

static void set_timer(uint64_t when) {
#if __riscv_xlen == 64
    MTIMECMP = when;
#else
    volatile uint32_t *words = (volatile uint32_t *)&MTIMECMP;
    words[1] = 0xffffffff;
    words[0] = (uint32_t)when;
    words[1] = (uint32_t)(when >> 32);
#endif
}

static void stop(void) {
    for (;;)
        __asm__ volatile("wfi");
}

__attribute__((interrupt, aligned(64))) static void trap(void) {
    uintptr_t cause = READ(mcause), pc = READ(mepc);
    if ((intptr_t)cause < 0) {
        uint64_t now = port_ticks();
        set_timer(now + PERIOD);
        int verdict = agent_verdict(now);
        if (verdict) {
            agent_fault(0, pc, 0, verdict);
            end_kernel(verdict);
        }
        return;
    }
    int inside = agent_is_running();
    agent_fault(cause, pc, READ(mtval), inside ? STATUS_FAULT : STATUS_PANIC);
    if (!inside)
        stop();
    end_kernel(STATUS_FAULT);
}

void port_start(void) {
    __asm__ volatile("csrw mtvec, %0" ::"r"(trap));
    __asm__ volatile("csrs mcounteren, %0" ::"r"(7));
    UART_REGISTER(3) = 3;       /* 8 bits, no parity */
    UART_REGISTER(2) = 7;       /* clear and enable the queues */
    UART_REGISTER(1) = 1;       /* an interrupt while there are bytes received */
    PLIC_REGISTER(4 * IRQ) = 1;
    PLIC_REGISTER(0x2000 + IRQ / 32 * 4) = 1u << IRQ % 32;
    PLIC_REGISTER(0x200000) = 0;
    set_timer(port_ticks() + PERIOD);
    __asm__ volatile("csrs mie, %0" ::"r"(TIMED));
    __asm__ volatile("csrs mstatus, %0" ::"r"(ENABLED));
}

/* Interrupts are masked: those of the UART and of the timer end the sleep, but call no handler. */
void port_sleep(void) {
    __asm__ volatile("csrc mstatus, %0" ::"r"(ENABLED));
    set_timer(port_ticks() + CLOCK / 2);
    PLIC_CLAIM = PLIC_CLAIM;    /* forget bytes that have been read */
    __asm__ volatile("csrs mie, %0" ::"r"(EXTERNAL));
    if (!(UART_REGISTER(5) & 1))
        __asm__ volatile("wfi");
    __asm__ volatile("csrc mie, %0" ::"r"(EXTERNAL));
    set_timer(port_ticks() + PERIOD);
    __asm__ volatile("csrs mstatus, %0" ::"r"(ENABLED));
}

uint64_t port_ticks(void) {
#if __riscv_xlen == 64
    return MTIME;
#else
    volatile uint32_t *words = (volatile uint32_t *)&MTIME;
    uint32_t high, low;
    do {
        high = words[1];
        low = words[0];
    } while (high != words[1]);
    return (uint64_t)high << 32 | low;
#endif
}

uint64_t port_instructions(void) {
#if __riscv_xlen == 64
    return READ(minstret);
#else
    uint32_t high, low;
    do {
        high = READ(minstreth);
        low = READ(minstret);
    } while (high != READ(minstreth));
    return (uint64_t)high << 32 | low;
#endif
}

void port_synchronise(void) { __asm__ volatile("fence.i" ::: "memory"); }

int serial_byte(void) { return UART_REGISTER(5) & 1 ? UART_REGISTER(0) : -1; }

void serial_send(uint8_t byte) {
    while (!(UART_REGISTER(5) & 0x20))
        ;
    UART_REGISTER(0) = byte;
}
