use super::{Across, frames_across};
use crate::mmap::Pages;
use crate::umem::Geometry;

#[test]
fn frames_across_borders_are_as_many_as_one_counts() {
    for frame in [2048, 2049, 3000, 3072, 4001, 4096] {
        for frames in [1, 2, 3, 64, 1000, 1400] {
            for page in [4096, 2 << 20] {
                let counted = (0..frames).filter(|n| n * frame / page != ((n + 1) * frame - 1) / page);
                assert_eq!(
                    frames_across(frames * frame, frame, page),
                    counted.count(),
                    "{frames} frames of {frame} bytes on pages of {page}"
                );
            }
        }
    }
}

#[test]
fn zero_copy_refuses_frames_across_pages_unless_these_are_huge() {
    let of = |frame_size, frames, pages| {
        let geometry = Geometry::new(frame_size, frames, 0, true).expect("sound");
        Across::with(&geometry, pages, None)
    };
    // Unaligned as they are, none is across a border.
    for pages in [Pages::Normal, Pages::Huge, Pages::Custom] {
        for frame_size in [2048, 4096] {
            assert_eq!(of(frame_size, 4096, pages), Across::Nothing);
        }
    }
    let Across::Refused(reason) = of(3000, 512, Pages::Normal) else {
        panic!("{:?}", of(3000, 512, Pages::Normal));
    };
    assert!(
        reason.contains("374 of 512") && reason.contains("huge pages"),
        "{reason}"
    );
    // In one huge page, and in two.
    assert_eq!(of(3000, 512, Pages::Huge), Across::Nothing);
    let Across::Told(told) = of(3000, 700, Pages::Huge) else {
        panic!("{:?}", of(3000, 700, Pages::Huge));
    };
    assert!(told.starts_with("1 of 700 frames"), "{told}");
    assert!(matches!(of(3000, 512, Pages::Custom), Across::Told(_)));
}

#[test]
fn a_refusal_says_why_there_are_no_huge_pages() {
    let geometry = Geometry::new(3000, 512, 0, true).expect("sound");
    let told = format!("{:?}", Across::with(&geometry, Pages::Normal, Some("reserve some")));
    assert!(told.contains("; reserve some"), "{told}");
}
