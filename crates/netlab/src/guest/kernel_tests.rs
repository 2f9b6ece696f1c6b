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

#[test]
fn a_kernel_in_the_cache_needs_no_network() {
    let root = folder(&[]);
    let cache = Cache::at(&root);
    let package: Package = "linux-image-some/here".parse().unwrap();
    let modules = root.join("linux-image-some@here/usr/lib/modules/7.3.4-amd64");
    fs::create_dir_all(modules.join("kernel")).unwrap();
    fs::write(modules.join("vmlinuz"), "").unwrap();
    // SHA-256 of nothing.
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let line = format!("{digest}  ./usr/lib/modules/7.3.4-amd64/vmlinuz\n");
    fs::write(root.join("linux-image-some@here/SHA256SUMS"), line).unwrap();
    let kernel = Kernel::package(&package, &cache).unwrap();
    assert_eq!(kernel.release, "7.3.4-amd64");
    fs::remove_dir_all(root).unwrap();
}
