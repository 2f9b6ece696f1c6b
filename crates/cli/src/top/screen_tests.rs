use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::example::looks;
use super::super::observation::Observation;
use super::*;

fn drawn(app: &mut App, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |row: u16| {
        (0..columns)
            .map(|column| buffer[(column, row)].symbol())
            .collect::<String>()
    };
    (0..rows).map(|row| line(row).trim_end().to_owned()).collect()
}

fn seen() -> App {
    let [first, second] = looks();
    let mut app = App::default();
    app.observe(first);
    app.observe(second);
    app
}

fn press(app: &mut App, code: KeyCode) {
    app.on_key(KeyEvent::new(code, KeyModifiers::NONE));
}

const RECEIVER: &str = "\
ringside top, 1.00 s   rx 4711  ping 4712  eth0
rx 4711 up 62.0 s: ringside rx eth0
queue         mode        rx pkt/s   rx B/s tx pkt/s   tx B/s   wake/s   kick/s
eth0:0        native copy   1.00 M   64.0 M        0        0     4.50        0
  [FFFFFFFRRTTC..] fill 256 rx 50 user 6 tx 90 completion 10 free 100
  lost: rx_dropped: 10.0/s, 20.0 in all
  the fill ring was found empty: 10.0/s; more --frames help
eth0:1        native copy        0        0        0        0     4.50        0
  where its frames are it has not told yet

CPU       user %  system softirq   steal    NET_RX/s    NET_TX/s       irq/s
0             60       0      25       0      20.0 k           0         500
1              0       0       0       0           0           0           0
something could not be seen









 q quit  Tab next page  arrows  p pause  r reset  ? help";

#[test]
fn a_running_command_in_80_columns() {
    let drawn = drawn(&mut seen(), 80, 24);
    assert_eq!(drawn.join("\n"), RECEIVER);
}

#[test]
fn an_interface_and_a_prober() {
    let mut app = seen();
    press(&mut app, KeyCode::Tab);
    let page = drawn(&mut app, 80, 24);
    assert_eq!(
        page[2..5].join("\n"),
        "\
round trips         min     mean      p50      p90      p99    p99.9      max
  now           10.0 µs  10.1 µs  10.1 µs  10.1 µs        -        -  10.1 µs
  all           10.0 µs  46.4 µs  50.0 µs  50.0 µs  50.0 µs        -  50.0 µs"
    );
    press(&mut app, KeyCode::Tab);
    let page = drawn(&mut app, 80, 24);
    assert_eq!(
        page[1..10].join("\n"),
        "\
eth0 (igc) up, MTU 1500
link                      rx pkt/s   rx B/s tx pkt/s   tx B/s
                            1.00 M   64.0 M        0        0
  rx 0 AF_XDP: packets 1.00 k/s
  tx 0 the driver tells nothing of it
lost: link rx_missed: 50.0/s, 50.0 in all
lost: exception: XDP_ABORTED: 4.00/s, 4.00 in all
  irq 41 eth0-rx-0: CPU 0 500/s
AF_XDP sockets in this namespace (process, name, number): 300 (xdpsock, 2)"
    );
}

/// However small: what fits, and no panic.
#[test]
fn any_size() {
    let mut app = seen();
    for (columns, rows) in [(1, 1), (2, 1), (1, 5), (10, 2), (20, 3), (40, 10), (79, 24), (300, 100)] {
        for help in [false, true] {
            app.help = help;
            assert_eq!(drawn(&mut app, columns, rows).len(), usize::from(rows));
        }
    }
    app.help = false;
    // The chosen page is named also where there is no room for those before it.
    press(&mut app, KeyCode::BackTab);
    assert_eq!(
        drawn(&mut app, 40, 4),
        [
            "ringside top, 1.00 s  <  eth0",
            "eth0 (igc) up, MTU 1500",
            "link                      rx pkt/s   rx",
            " q quit  Tab next page  arrows  p pause"
        ]
    );
}

/// No further than to the end, and from there back at once.
#[test]
fn scrolling() {
    let mut app = seen();
    for _ in 0..50 {
        press(&mut app, KeyCode::Down);
    }
    let page = drawn(&mut app, 80, 8);
    assert_eq!(page[6], "something could not be seen");
    assert!(page[1].starts_with("  where its frames are"), "{page:#?}");
    press(&mut app, KeyCode::Up);
    assert!(drawn(&mut app, 80, 8)[1].starts_with("eth0:1 "));
    press(&mut app, KeyCode::Home);
    assert!(drawn(&mut app, 80, 8)[1].starts_with("rx 4711 up"));
}

#[test]
fn what_is_said_where_there_is_nothing() {
    let mut app = App::default();
    assert_eq!(drawn(&mut app, 80, 3)[1], "looking …");
    app.observe(Observation {
        elsewhere: 2,
        ..Observation::default()
    });
    press(&mut app, KeyCode::Char('p'));
    let page = drawn(&mut app, 120, 5);
    assert!(page[1].starts_with("No ringside command runs here"), "{page:#?}");
    assert_eq!(
        page[2],
        "2 in other network namespaces: ip netns exec NAME ringside top"
    );
    assert!(page[4].starts_with(" paused "), "{page:#?}");
    press(&mut app, KeyCode::Char('?'));
    assert!(drawn(&mut app, 80, 5)[1].starts_with("q, Esc, Ctrl-C"));
}
