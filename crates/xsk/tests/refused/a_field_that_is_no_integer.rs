use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct RxTime {
    seconds: f64,
    rx_cpu: u32,
    btf_id: u32,
}

fn main() {}
