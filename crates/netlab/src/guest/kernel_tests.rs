use super::*;

fn folder(files: &[&str]) -> PathBuf {
    let root = std::env::temp_dir().join(crate::name::unique("kernel").unwrap());
    for file in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    root
}

#[test]
fn kernels_of_both_layouts_are_found() {
    let new = [
        "usr/lib/modules/7.3.4-amd64/vmlinuz",
        "usr/lib/modules/7.3.4-amd64/kernel/net/a.ko.xz",
    ];
    let old = [
        "boot/vmlinuz-6.1.0-9-amd64",
        "lib/modules/6.1.0-9-amd64/kernel/net/a.ko",
    ];
    for (files, release) in [(new, "7.3.4-amd64"), (old, "6.1.0-9-amd64")] {
        let root = folder(&files);
        let kernel = Kernel::inside(&root).unwrap();
        assert_eq!(kernel.release, release);
        assert_eq!(kernel.image, root.join(files[0]));
        assert!(kernel.modules.join("kernel/net").is_dir());
        fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn modules_without_a_kernel_are_none() {
    let root = folder(&["usr/lib/modules/7.3.4-amd64/kernel/net/a.ko.xz"]);
    let error = Kernel::inside(&root).unwrap_err().to_string();
    assert!(error.contains(root.to_str().unwrap()), "{error}");
    fs::remove_dir_all(root).unwrap();
}

/// The address of no package server is used: without one it would take a while, and another error.
#[test]
fn a_missing_kernel_is_an_error_at_once_where_nothing_may_be_fetched() {
    let cache = Cache::at(folder(&[]));
    let package = "linux-image-none/no-suite".parse().unwrap();
    let error = Kernel::from_cache(&package, &cache, true).unwrap_err().to_string();
    for part in ["linux-image-none@no-suite", OFFLINE, "scripts/setup"] {
        assert!(error.contains(part), "no {part} in {error}");
    }
    assert!(!cache.path("").exists(), "the cache stays as it was");
}

#[test]
fn a_kernel_in_the_cache_needs_no_network() {
    let root = folder(&[]);
    let cache = Cache::at(&root);
    let package: Package = "linux-image-some/here".parse().unwrap();
    let make = |path: &Path| {
        for file in ["vmlinuz", "kernel/a.ko"] {
            let file = path.join("usr/lib/modules/7.3.4-amd64").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        Ok(())
    };
    cache.entry(&package.file_name(), make).unwrap();
    let kernel = Kernel::from_cache(&package, &cache, true).unwrap();
    assert_eq!(kernel.release, "7.3.4-amd64");
    fs::remove_dir_all(root).unwrap();
}
