//! Members of etcd that take connections and answer nothing.

use std::net::TcpListener;

use super::*;
use crate::fleet::client::EtcdOptions;
use crate::fleet::sync::Timing;

/// After this time a connection counts as one that is there.
const CONNECT: Duration = Duration::from_millis(100);

/// Connects to the first of these members.
fn door(members: usize) -> (Door, Vec<TcpListener>) {
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
    (door, listeners)
}

/// Gives up requests to the first of these members, one after the other, while its connection is
/// there, and returns the turn of who is asked after each. `is_turned`: another request has turned
/// from that member meanwhile.
async fn turns_after_late_answers<const COUNT: usize>(members: usize, is_turned: bool) -> [u64; COUNT] {
    let (door, _listeners) = door(members);
    let status = Arc::new(Status::new(Duration::from_secs(60)));
    let (tables, _done) = mpsc::channel(1);
    let mut follower = Follower::new(door.clone(), (None, 0), status, tables);
    follower.act(Action::Pulse).await.unwrap();
    tokio::time::sleep(2 * CONNECT).await;
    assert_eq!(door.etcd().await.unwrap().turn(), 0);
    assert!(follower.tasks[PULSE].is_under_way());
    if is_turned {
        door.turn_from(0).await;
    }
    let mut turns = [0; COUNT];
    for turn in &mut turns {
        follower.act(Action::Pulse).await.unwrap();
        tokio::time::sleep(2 * CONNECT).await;
        assert!(follower.tasks[PULSE].is_under_way());
        *turn = door.etcd().await.unwrap().turn();
    }
    turns
}

#[tokio::test]
async fn late_answer_turns_once_and_from_its_own_member() {
    for is_turned in [false, true] {
        assert_eq!(turns_after_late_answers(2, is_turned).await, [1], "{is_turned}");
    }
}

#[tokio::test]
async fn only_member_has_a_new_connection_after_the_second_late_answer() {
    assert_eq!(turns_after_late_answers(1, false).await, [0, 1]);
}

#[tokio::test]
async fn lost_change_turns_from_a_member_that_has_not_answered_since() {
    let (door, _listeners) = door(2);
    let turn = async || door.etcd().await.unwrap().turn();
    let sent = std::time::Instant::now();
    door.good(turn().await).await;
    door.lost_from(0, sent).await;
    assert_eq!(turn().await, 0, "it answers");
    door.lost_from(0, std::time::Instant::now()).await;
    assert_eq!(turn().await, 1);
    door.lost_from(1, sent).await;
    assert_eq!(turn().await, 2, "the other one has answered nothing");
}
