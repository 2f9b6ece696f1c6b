use super::*;

#[test]
fn the_own_namespace_is_known_and_entered_without_a_thread() {
    let own = NamespaceId::current().unwrap();
    assert!(own.cookie.is_some_and(|cookie| cookie > 0), "{own:?}");
    let caller = thread::current().id();
    assert_eq!(own.run(|| thread::current().id() == caller).unwrap(), Some(true));
    // A thread does not change it.
    assert_eq!(thread::spawn(NamespaceId::current).join().unwrap().unwrap(), own);
}

#[test]
fn a_namespace_that_is_gone_is_not_mistaken_for_one_with_its_inode() {
    let own = NamespaceId::current().unwrap();
    let earlier = NamespaceId {
        cookie: Some(u64::MAX),
        ..own
    };
    // Entering takes CAP_SYS_ADMIN; without it the error says so, and the closure does not run either.
    match earlier.run(|| panic!("entered")) {
        Ok(found) => assert_eq!(found, None),
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
    }
    let nowhere = NamespaceId { inode: 1, ..earlier };
    assert_eq!(nowhere.run(|| ()).unwrap(), None);
}

#[test]
fn mounts_of_a_namespace_are_found_by_its_inode() {
    let mountinfo = "\
36 25 0:4 net:[4026532281] /run/netns/one rw shared:1 - nsfs nsfs rw
37 25 0:4 net:[40265322810] /run/netns/two rw shared:1 - nsfs nsfs rw
38 25 0:4 / /proc rw - proc proc rw
39 25 0:4 net:[4026532281] /run/docker/netns/x rw - nsfs nsfs rw
short";
    assert_eq!(
        mounted(mountinfo, 4_026_532_281),
        ["/run/netns/one", "/run/docker/netns/x"].map(PathBuf::from)
    );
    assert!(mounted(mountinfo, 7).is_empty());
}
