//! Members of etcd that take connections and answer nothing.

use std::net::TcpListener;

use super::*;
use crate::fleet::client::EtcdOptions;
use crate::fleet::sync::Timing;

/// After this time a connection counts as one that is there.
const CONNECT: Duration = Duration::from_millis(100);

/// Gives up a request to the first of these members while its connection is there, and returns the
/// turn of who is asked then. `is_turned`: another request has turned from that member meanwhile.
async fn turn_after_a_late_answer(members: usize, is_turned: bool) -> u64 {
    let listeners: Vec<_> = (0..members)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let endpoint = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let silence = Duration::from_secs(60);
    let door = Door::new(EtcdOptions {
        endpoints: listeners.iter().map(endpoint).collect(),
        prefix: "/test/".to_owned(),
        tls: None,
        user: None,
        connect: CONNECT,
        request: silence,
        balance: silence,
        forward_stale: None,
        timing: Timing {
            silence,
            ..Timing::default()
        },
    });
    let status = Arc::new(Status::new(silence));
    let (tables, _done) = mpsc::channel(1);
    let mut follower = Follower::new(door.clone(), (None, 0), status, tables);
    follower.act(Action::Pulse).await.unwrap();
    tokio::time::sleep(2 * CONNECT).await;
    assert_eq!(door.etcd().await.unwrap().turn(), 0);
    assert!(follower.tasks[PULSE].is_under_way());
    if is_turned {
        door.turn_from(0).await;
    }
    follower.act(Action::Pulse).await.unwrap();
    tokio::time::sleep(2 * CONNECT).await;
    assert!(follower.tasks[PULSE].is_under_way());
    door.etcd().await.unwrap().turn()
}

#[tokio::test]
async fn late_answer_turns_once_and_from_its_own_member() {
    for is_turned in [false, true] {
        assert_eq!(turn_after_a_late_answer(2, is_turned).await, 1, "{is_turned}");
    }
}

#[tokio::test]
async fn late_answer_keeps_the_connection_to_the_only_member() {
    assert_eq!(turn_after_a_late_answer(1, false).await, 0);
}
