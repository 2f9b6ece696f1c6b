/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What else CPUs do while packets are on their way, and when tasks that are watched are woken up and run. Included by trace.bpf.c, whose programs these are.
 */
#ifndef RINGSIDE_TRACE_CPUS_H
#define RINGSIDE_TRACE_CPUS_H

#include "trace.h"

struct irqaction {
	const char *name;
} __attribute__((preserve_access_index));

/* The state of cpu_idle when the CPU goes on. */
#define PWR_EVENT_EXIT ((__u32)-1)

/* As in trace/event.rs. */
enum disturbance {
	INTERRUPT,
	VECTOR,
	SOFT_INTERRUPT,
	TASK,
	IDLE,
};

/* Something that had a CPU for a while. */
struct disturber {
	__u64 from_ns;
	__u64 to_ns;
	/* the interrupt's number, the vector's kind, the soft interrupt's number, the task's, the idle state */
	__u32 id;
	__u16 cpu;
	__u8 kind;
	__u8 pad;
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} disturbers SEC(".maps");

static __always_inline struct disturber *noted(struct here *here, __u8 kind, __u32 id, __u64 from, __u64 to)
{
	struct disturber *disturber;

	if (!from)
		return 0;
	disturber = bpf_ringbuf_reserve(&disturbers, sizeof(*disturber), 0);
	if (!disturber) {
		here->lost++;
		return 0;
	}
	disturber->from_ns = from;
	disturber->to_ns = to;
	disturber->id = id;
	disturber->cpu = bpf_get_smp_processor_id();
	disturber->kind = kind;
	disturber->pad = 0;
	disturber->name[0] = 0;
	return disturber;
}

static __always_inline void note(struct here *here, __u8 kind, __u32 id, __u64 from, __u64 to)
{
	struct disturber *disturber = noted(here, kind, id, from, to);

	if (disturber)
		bpf_ringbuf_submit(disturber, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(disturb_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 now = bpf_ktime_get_ns();
	struct disturber *disturber;
	struct here *here = this_cpu();

	if (!here)
		return 0;
	if (prev->pid) {
		disturber = noted(here, TASK, prev->pid, here->switch_ns, now);
		if (disturber) {
			bpf_probe_read_kernel_str(disturber->name, sizeof(disturber->name), prev->comm);
			bpf_ringbuf_submit(disturber, BPF_RB_NO_WAKEUP);
		}
	}
	here->switch_ns = now;
	return 0;
}

/* There are ten kinds. */
static __always_inline __u64 *soft_since(struct here *here, __u32 vec)
{
	/* The verifier shall see the bound, and not what the compiler made of it. */
	barrier_var(vec);
	vec &= 15;
	return &here->soft_ns[vec];
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(disturb_softirq, unsigned int vec)
{
	struct here *here = this_cpu();

	if (here)
		*soft_since(here, vec) = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(disturb_softirq_end, unsigned int vec)
{
	struct here *here = this_cpu();
	__u64 *since;

	if (!here)
		return 0;
	since = soft_since(here, vec);
	note(here, SOFT_INTERRUPT, vec, *since, bpf_ktime_get_ns());
	*since = 0;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(disturb_irq, int irq, struct irqaction *action)
{
	struct here *here = this_cpu();

	if (here)
		here->irq_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(disturb_irq_end, int irq, struct irqaction *action, int ret)
{
	struct disturber *disturber;
	struct here *here = this_cpu();

	if (!here)
		return 0;
	disturber = noted(here, INTERRUPT, irq, here->irq_ns, bpf_ktime_get_ns());
	here->irq_ns = 0;
	if (!disturber)
		return 0;
	bpf_probe_read_kernel_str(disturber->name, sizeof(disturber->name), action->name);
	bpf_ringbuf_submit(disturber, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Interrupts that are no device's: x86 has tracepoints of their own for them. */
static __always_inline int vector(void)
{
	struct here *here = this_cpu();

	if (here)
		here->vector_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int vector_end(__u32 kind)
{
	struct here *here = this_cpu();

	if (here) {
		note(here, VECTOR, kind, here->vector_ns, bpf_ktime_get_ns());
		here->vector_ns = 0;
	}
	return 0;
}

#define VECTOR_OF(name, number)                    \
	SEC("tp_btf/" #name "_entry")              \
	int BPF_PROG(disturb_##name)               \
	{                                          \
		return vector();                   \
	}                                          \
	SEC("tp_btf/" #name "_exit")               \
	int BPF_PROG(disturb_##name##_end)         \
	{                                          \
		return vector_end(number);         \
	}

VECTOR_OF(local_timer, 0)
VECTOR_OF(reschedule, 1)
VECTOR_OF(call_function, 2)
VECTOR_OF(call_function_single, 3)
VECTOR_OF(irq_work, 4)

SEC("tp_btf/cpu_idle")
int BPF_PROG(disturb_idle, unsigned int state, unsigned int cpu)
{
	struct here *here = this_cpu();
	__u64 now;

	if (!here)
		return 0;
	now = bpf_ktime_get_ns();
	if (state != PWR_EVENT_EXIT) {
		here->idle_ns = now;
		here->idle_state = state;
		return 0;
	}
	note(here, IDLE, here->idle_state, here->idle_ns, now);
	here->idle_ns = 0;
	return 0;
}

/* --- tasks that are watched ---------------------------------------------------------------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u8);
} watched SEC(".maps");

static __always_inline void scheduled(__u8 what, __u32 pid)
{
	struct here *here = this_cpu();
	struct event *event;
	struct id id = {};

	if (!here || !bpf_map_lookup_elem(&watched, &pid))
		return;
	event = begin(here, what, &id, bpf_ktime_get_ns());
	if (!event)
		return;
	event->extra[0] = pid;
	tell(event);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(watch_waking, struct task_struct *task)
{
	scheduled(TASK_WOKEN, task->pid);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(watch_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	scheduled(TASK_OFF, prev->pid);
	scheduled(TASK_ON, next->pid);
	return 0;
}

#endif
