//! Queues leave their port for tasks of tokio, which run on any of its threads.

use ringside_netlab::testing::is_root;
use ringside_xsk::{Path, Port, PortGuard, Queue, StatsReader, Wait};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::time::timeout;

use super::common::{PATIENCE, check, lab, leading_to, open, send_numbers, sender};

const fn goes_to_other_threads<T: Send + 'static>() {}
const _: () = {
    goes_to_other_threads::<Queue>();
    goes_to_other_threads::<Port>();
    goes_to_other_threads::<PortGuard>();
    goes_to_other_threads::<StatsReader>();
};

/// Receives so many packets, and sleeps meanwhile.
async fn receive(queue: Queue, enough: usize) -> Vec<u64> {
    // SAFETY: a queue has one descriptor, until it is dropped.
    let queue = unsafe { AsyncFd::register_with_interest(queue, Interest::READABLE) };
    let mut queue = queue.expect("epoll");
    let mut numbers = Vec::new();
    while numbers.len() < enough {
        let mut ready = queue.readable_mut().await.expect("epoll");
        let mut burst = ready.get_inner_mut().recv(Wait::Spin).expect("receives");
        let is_read_until_nothing_is_left = burst.is_empty() && burst.event().is_none();
        numbers.extend(burst.iter_mut().filter_map(|packet| check(packet.data())));
        drop(burst);
        if is_read_until_nothing_is_left {
            ready.clear_ready();
        }
    }
    numbers
}

#[test]
fn queues_receive_in_tasks_of_their_own() {
    if !is_root() {
        return;
    }
    let lab = lab("tokio", 2);
    let port = open(&lab.b, Path::NativeCopy, |port| port);
    let (guard, queues) = port.into_queues();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .enable_time()
        .build()
        .expect("threads");
    let tasks: Vec<_> = queues
        .into_iter()
        .map(|queue| runtime.spawn(async { timeout(PATIENCE, receive(queue, 100)).await }))
        .collect();
    let mut sender = sender(&lab.a);
    for (queue, first) in [(0, 0), (1, 1_000)] {
        let tx = sender.queues_mut().nth(leading_to(queue, Path::NativeCopy)).unwrap();
        // In two parts: the task sleeps between them.
        send_numbers(tx, first..first + 50, &lab.a, &lab.b);
        std::thread::sleep(std::time::Duration::from_millis(20));
        send_numbers(tx, first + 50..first + 100, &lab.a, &lab.b);
    }
    for (task, first) in tasks.into_iter().zip([0, 1_000]) {
        let numbers = runtime.block_on(task).expect("no panic").expect("in time");
        assert!(numbers.into_iter().eq(first..first + 100));
    }
    drop(guard);
}
