use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[hints(nam = "rx_time")]
#[repr(C)]
struct RxTime {
    rx_cpu: u32,
    btf_id: u32,
}

fn main() {}
