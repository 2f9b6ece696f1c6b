use super::{Method, PhcDevice};
use crate::clock::{Offset, Realtime, Tai, Timestamp};

#[test]
fn what_is_no_phc_is_an_error_that_names_it() {
    let missing = PhcDevice::open("/dev/ptp4095").unwrap_err();
    assert_eq!(missing.errno(), Some(libc::ENOENT), "{missing}");
    assert!(missing.to_string().contains("/dev/ptp4095"), "{missing}");
    let other = PhcDevice::open("/dev/null").unwrap_err();
    assert_eq!(other.errno(), Some(libc::ENOTTY), "{other}");
}

/// On a host with PHCs each is read, by every way that it has; without, the list is empty and nothing else is claimed.
#[test]
fn the_phcs_of_this_host_tell_their_times() {
    for device in PhcDevice::all() {
        let device = device.unwrap();
        device.scope(|phc| {
            let (offset, method) = phc.offset().unwrap();
            let capable = device.capabilities().unwrap().cross_timestamping;
            assert!(capable || method != Method::Precise, "{method:?}");
            let (before, shown, after) = (Timestamp::<Realtime>::now(), phc.now().unwrap(), Timestamp::now());
            let (first, last) = (offset.convert(before).unwrap(), offset.convert(after).unwrap());
            let margin = i64::try_from(first.uncertainty_ns.max(last.uncertainty_ns)).unwrap();
            assert!(shown - first.at >= -margin && shown - last.at <= margin, "{offset}");
            // On to a clock that the device knows nothing of.
            let to_tai = offset
                .inverse()
                .unwrap()
                .then(&Offset::<Realtime, Tai>::measure())
                .unwrap();
            assert!(to_tai.uncertainty_ns() > offset.uncertainty_ns());
        });
    }
}
