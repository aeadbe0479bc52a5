/* Cortex-M: vector table, start, faults, SysTick as clock, and the CMSDK's UART. Source: Armv8-M Architecture Reference
   Manual, Cortex-M System Design Kit. */
#include "port.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define NVIC_ENABLE REGISTER(0xe000e100 + IRQ / 32 * 4)
#define NVIC_DISABLE REGISTER(0xe000e180 + IRQ / 32 * 4)
#define NVIC_FORGET REGISTER(0xe000e280 + IRQ / 32 * 4)
#define SYST_CSR REGISTER(0xe000e010)
#define SYST_RVR REGISTER(0xe000e014)
#define SYST_CVR REGISTER(0xe000e018)
#define ICSR REGISTER(0xe000ed04)
#define VTOR REGISTER(0xe000ed08)
#define CFSR REGISTER(0xe000ed28)
#define HFSR REGISTER(0xe000ed2c)
#define MMFAR REGISTER(0xe000ed34)
#define BFAR REGISTER(0xe000ed38)
#define CPACR REGISTER(0xe000ed88)
#define UART_DATA REGISTER(UART)
#define UART_STATE REGISTER(UART + 4)
#define UART_CTRL REGISTER(UART + 8)
#define UART_INTERRUPTS REGISTER(UART + 12)
#define UART_BAUD REGISTER(UART + 16)
#define RECEIVED 2u             /* of UART_STATE and UART_INTERRUPTS */
#define FORGET_TICK (1u << 25)  /* of ICSR */
#define PERIOD (CLOCK / 500)
#define LONGEST_PERIOD (1u << 24)

extern char motet_stack_end[], motet_bss[], motet_bss_end[];
uintptr_t motet_context;
static volatile uint64_t passed; /* ticks at the start of the period */

void reset(void) __attribute__((noreturn));
void fault(void);
void tick(void);
void leave(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    motet_stack_end, reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault, tick,
};

void reset(void) {
    CPACR |= 0xf << 20;         /* the floating-point unit, and with it MVE */
    __asm__ volatile("dsb\n\tisb");
    VTOR = (uint32_t)vectors;
#ifdef STACK_LIMIT
    extern char motet_stack[];
    __asm__ volatile("msr msplim, %0" ::"r"(motet_stack));
#endif
    for (char *at = motet_bss; at < motet_bss_end; at++)
        *(volatile char *)at = 0;
    agent_main();
}

static void begin_period(uint32_t ticks) {
    SYST_RVR = ticks - 1;
    SYST_CVR = 0;
    ICSR = FORGET_TICK;
}

void port_start(void) {
    begin_period(PERIOD);
    SYST_CSR = 7;               /* the processor's clock, interrupts, on */
    UART_BAUD = CLOCK / BAUD < 16 ? 16 : CLOCK / BAUD;
    UART_CTRL = 11;             /* send, receive, interrupt for each byte received */
    __asm__ volatile("cpsie i");
}

/* Interrupts are masked: those of the UART and of SysTick end the sleep, but call no handler. The clock stands still. */
void port_sleep(void) {
    __asm__ volatile("cpsid i");
    passed = port_ticks();
    begin_period(LONGEST_PERIOD);
    UART_INTERRUPTS = RECEIVED; /* forget bytes that have been read */
    NVIC_FORGET = 1u << IRQ % 32;
    NVIC_ENABLE = 1u << IRQ % 32;
    __asm__ volatile("dsb" ::: "memory");
    if (!(UART_STATE & RECEIVED))
        __asm__ volatile("wfi");
    NVIC_DISABLE = 1u << IRQ % 32;
    begin_period(PERIOD);
    __asm__ volatile("cpsie i");
}

uint64_t port_ticks(void) {
    static uint64_t last;
    uint64_t before, within, now;
    do {
        before = passed;
        within = PERIOD - 1 - SYST_CVR;
        __asm__ volatile("dsb\n\tisb");
    } while (before != passed);
    now = before + within;
    if (now < last)             /* the counter began again, and its interrupt is late, as in an emulator */
        now += PERIOD;
    return last = now;
}

uint64_t port_instructions(void) { return 0; }

void port_synchronise(void) { __asm__ volatile("dsb\n\tisb" ::: "memory"); }

int serial_byte(void) { return UART_STATE & RECEIVED ? (int)(UART_DATA & 255) : -1; }

void serial_send(uint8_t byte) {
    while (UART_STATE & 1)
        ;
    UART_DATA = byte;
}

/* -- calls of kernels, and how interrupts end them ------------------------------------------------------------ */

__attribute__((naked)) int enter(uintptr_t entry, const struct call *call) {
    (void)entry, (void)call;
    __asm__ volatile(
        "push {r4-r11, lr}\n\tvpush {d8-d15}\n\tsub sp, #4\n\t"
        "ldr r3, =motet_context\n\tstr sp, [r3]\n\t"
        "sub sp, #16\n\tmov r12, r0\n\tmov r3, #0\n\t"
        "ldr r4, [r1, #8]\n\tstr r4, [sp]\n\tstr r3, [sp, #4]\n\t"      /* end */
        "ldr r4, [r1, #12]\n\tstr r4, [sp, #8]\n\t"                     /* scratch */
        "ldr r0, [r1]\n\tldr r1, [r1, #4]\n\tmov r2, #0\n\t"            /* begin is r2, r3 */
        "blx r12\n\tadd sp, #16\n\tmov r0, #2\n"                        /* STATUS_OK */
        "1:\n\tadd sp, #4\n\tvpop {d8-d15}\n\tpop {r4-r11, pc}\n\t"
        ".globl leave\n\t.thumb_func\nleave:\n\t"
        "ldr r3, =motet_context\n\tldr sp, [r3]\n\tb 1b\n\t.ltorg");
}
_Static_assert(STATUS_OK == 2, "enter");

/* Let the exception return to `leave`, which returns `status` from `enter`. */
static void end_kernel(uint32_t *frame, int status) {
    frame[0] = (uint32_t)status;
    frame[6] = (uint32_t)leave & ~1u;
    frame[7] &= ~0x0600fc00u;   /* no conditional or interrupted instruction goes on */
}

static void stop(void) {
    for (;;)
        __asm__ volatile("wfi");
}

__attribute__((used)) void fault_of(uint32_t *frame) {
    uint32_t cause = CFSR, address = cause & 0x8000 ? BFAR : cause & 0x80 ? MMFAR : 0;
    int inside = agent_is_running();
    agent_fault(cause | (uint64_t)HFSR << 32, frame[6], address, inside ? STATUS_FAULT : STATUS_PANIC);
    CFSR = cause;
    HFSR = HFSR;
    if (!inside)
        stop();
    end_kernel(frame, STATUS_FAULT);
}

__attribute__((used)) void tick_of(uint32_t *frame) {
    passed += PERIOD;
    int verdict = agent_verdict(passed);
    if (verdict) {
        agent_fault(0, frame[6], 0, verdict);
        end_kernel(frame, verdict);
    }
}

__attribute__((naked)) void fault(void) { __asm__ volatile("mov r0, sp\n\tb fault_of"); }
__attribute__((naked)) void tick(void) { __asm__ volatile("mov r0, sp\n\tb tick_of"); }
