use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
union Both {
    time: u32,
    btf_id: u32,
}

fn main() {}
