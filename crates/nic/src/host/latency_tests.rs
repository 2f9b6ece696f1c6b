use std::time::Duration;

use ringside_netlab::wait_until;

use super::WakeUpLimit;

/// Others of this machine may hold a limit too, also while this runs: then the smaller one counts.
#[test]
fn a_limit_is_there_while_it_is_held() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let before = WakeUpLimit::now().unwrap();
    let loose = WakeUpLimit::hold(7).unwrap();
    assert!(WakeUpLimit::now().unwrap() <= 7);
    let strict = WakeUpLimit::hold(3).unwrap();
    assert!(WakeUpLimit::now().unwrap() <= 3);
    drop(strict);
    drop(loose);
    if before > 7 {
        let is_gone = || WakeUpLimit::now().unwrap() > 7;
        // A child that another thread has forked holds it until it executes its program.
        assert!(wait_until(Duration::from_secs(10), is_gone), "it went with who held it");
    }
    assert!(WakeUpLimit::hold(u32::MAX).is_err());
}
