use super::*;

#[test]
fn the_way_to_oneself_is_local() {
    for own in ["127.0.0.1", "127.9.9.9"] {
        let route = Route::to(own.parse().unwrap()).unwrap();
        assert!(
            route.is_local && route.interface.name() == "lo" && route.gateway.is_none(),
            "{route:?}"
        );
    }
}
