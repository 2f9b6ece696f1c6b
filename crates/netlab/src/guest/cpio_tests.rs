use super::*;

/// Name, mode, device and content.
type Entry = (String, u32, (u32, u32), Vec<u8>);

/// All entries, read by the format's description.
fn entries(mut archive: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        assert_eq!(&archive[..6], b"070701");
        let field = |number: usize| {
            let digits = std::str::from_utf8(&archive[6 + 8 * number..14 + 8 * number]).unwrap();
            u32::from_str_radix(digits, 16).unwrap()
        };
        let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
        let device = (field(9), field(10));
        let name = std::str::from_utf8(&archive[110..110 + name_size - 1])
            .unwrap()
            .to_owned();
        assert_eq!(archive[110 + name_size - 1], 0);
        let content = (110 + name_size).next_multiple_of(4);
        let bytes = archive[content..content + size].to_vec();
        if name == "TRAILER!!!" {
            return entries;
        }
        entries.push((name, mode, device, bytes));
        archive = &archive[(content + size).next_multiple_of(4)..];
    }
}

#[test]
fn folders_stand_before_what_is_in_them_and_nothing_twice() {
    let mut archive = Archive::new(Vec::new());
    archive.file(Path::new("/usr/lib/a"), 0o755, b"12345").unwrap();
    archive.file(Path::new("/usr/lib/b"), 0o644, b"").unwrap();
    archive.file(Path::new("/usr/lib/a"), 0o644, b"other").unwrap();
    archive.directory(Path::new("/usr/share")).unwrap();
    archive.character_device(Path::new("/dev/console"), (5, 1)).unwrap();
    assert!(archive.contains(Path::new("/usr/lib/b")) && !archive.contains(Path::new("/usr/lib/c")));
    let entries = entries(&archive.finish().unwrap());
    let found: Vec<_> = entries.iter().map(|(name, mode, ..)| (name.as_str(), *mode)).collect();
    let expected = [
        ("usr", 0o040_755),
        ("usr/lib", 0o040_755),
        ("usr/lib/a", 0o100_755),
        ("usr/lib/b", 0o100_644),
        ("usr/share", 0o040_755),
        ("dev", 0o040_755),
        ("dev/console", 0o020_600),
    ];
    assert_eq!(found, expected);
    assert_eq!(entries[2].3, b"12345");
    assert_eq!(entries[6].2, (5, 1));
}

#[test]
fn a_path_that_leads_elsewhere_is_refused() {
    let mut archive = Archive::new(Vec::new());
    assert!(archive.file(Path::new("/usr/../etc/passwd"), 0o644, b"").is_err());
}
