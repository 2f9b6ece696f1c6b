use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
enum RxTime {
    Hardware,
    Software,
}

fn main() {}
