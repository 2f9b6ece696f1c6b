use anyhow::anyhow;
use ringside_xsk::{Error, Path};

use super::*;

/// As a driver without zero-copy answers on a UMEM that a zero-copy queue uses.
fn refused() -> anyhow::Error {
    let error = Error::Mode {
        interface: "eth1".into(),
        wanted: Path::Copy,
        reason: "zero-copy refused: bind() of queue 0 answered EOPNOTSUPP".into(),
    };
    error.into()
}

fn busy() -> anyhow::Error {
    anyhow!("in use")
}

/// What was opened, and on the shared UMEM or not.
fn port(name: &str, umem: Option<&()>) -> String {
    format!("{name} {}", if umem.is_some() { "shared" } else { "apart" })
}

#[test]
fn both_share_where_they_can() {
    let opened = both(
        Ok(()),
        |umem| Ok(port("in", umem)),
        |first, umem| Ok(format!("{first}, {}", port("out", umem))),
    );
    let expected = ("in shared".to_owned(), "in shared, out shared".to_owned(), None);
    assert_eq!(opened.unwrap(), expected);
}

#[test]
fn the_second_one_stands_apart_where_it_cannot_share() {
    let (first, second, why) = both(
        Ok(()),
        |umem| Ok(port("in", umem)),
        |_, umem| match umem {
            Some(()) => Err(refused()),
            None => Ok(port("out", umem)),
        },
    )
    .unwrap();
    assert_eq!((first.as_str(), second.as_str()), ("in shared", "out apart"));
    assert_eq!(
        why.unwrap(),
        "eth1 cannot share it: zero-copy refused: bind() of queue 0 answered EOPNOTSUPP"
    );
}

#[test]
fn both_stand_apart_where_the_first_cannot_share_or_is_not_to() {
    for umem in [Ok(()), Err("as asked".to_owned())] {
        let (first, second, why) = both(
            umem.clone(),
            |umem| match umem {
                Some(()) => Err(refused()),
                None => Ok(port("in", umem)),
            },
            |_, umem| Ok(port("out", umem)),
        )
        .unwrap();
        assert_eq!((first.as_str(), second.as_str()), ("in apart", "out apart"));
        let expected = if umem.is_ok() {
            "eth1 cannot share it"
        } else {
            "as asked"
        };
        assert!(why.unwrap().starts_with(expected));
    }
}

/// What has nothing to do with sharing is told at once: no second attempt.
#[test]
fn other_errors_are_errors() {
    let none = |umem: Option<&()>| match umem {
        Some(()) => Err(busy()),
        None => panic!("a second attempt"),
    };
    assert!(both(Ok(()), none, |_: &String, umem| Ok(port("out", umem))).is_err());
    let second = |_: &String, umem: Option<&()>| none(umem);
    assert!(both(Ok(()), |umem| Ok(port("in", umem)), second).is_err());
    // Nor is an error on its own hidden by the one before.
    let error = both(
        Ok(()),
        |umem| Ok(port("in", umem)),
        |_, umem| match umem {
            Some(()) => Err(refused()),
            None => Err(busy()),
        },
    );
    assert_eq!(error.unwrap_err().to_string(), "in use");
}
