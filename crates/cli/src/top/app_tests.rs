use super::super::example::looks;
use super::*;

fn press(app: &mut App, code: KeyCode) -> After {
    app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn seen() -> App {
    let [first, second] = looks();
    let mut app = App::default();
    app.observe(first);
    app.observe(second);
    app
}

fn lost(app: &App) -> u64 {
    app.view.as_ref().unwrap().processes[0].queues[0].drops[0].packets
}

#[test]
fn pages_follow_each_other_around_the_ends() {
    let mut app = seen();
    let all = [Subject::Process(4711), Subject::Process(4712), Subject::Interface(0)];
    assert_eq!(app.subjects(), all);
    assert_eq!(app.chosen(), Some(all[0]));
    for (key, expected) in [
        (KeyCode::Tab, 1),
        (KeyCode::Right, 2),
        (KeyCode::Tab, 0),
        (KeyCode::BackTab, 2),
        (KeyCode::Left, 1),
    ] {
        assert_eq!(press(&mut app, key), After::Draw);
        assert_eq!(app.chosen(), Some(all[expected]), "{key:?}");
    }
    // What ends takes its page along.
    let [_, mut third] = looks();
    third.processes.clear();
    app.observe(third);
    assert_eq!(app.chosen(), Some(Subject::Interface(0)));
    app.observe(Observation::default());
    assert_eq!((app.chosen(), press(&mut app, KeyCode::Tab)), (None, After::Draw));
}

#[test]
fn a_pause_keeps_what_there_is_and_a_reset_begins_anew() {
    let mut app = seen();
    assert_eq!(lost(&app), 20);
    press(&mut app, KeyCode::Char('p'));
    app.observe(Observation::default());
    assert_eq!(lost(&app), 20);
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(lost(&app), 0);
    press(&mut app, KeyCode::Char(' '));
    app.observe(Observation::default());
    assert!(app.view.as_ref().unwrap().processes.is_empty());
}

#[test]
fn keys_that_end_it() {
    let mut app = App::default();
    assert_eq!(press(&mut app, KeyCode::Char('q')), After::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.on_key(interrupt), After::Quit);
    assert_eq!(press(&mut app, KeyCode::Char('c')), After::Nothing);
    // Help goes away first.
    press(&mut app, KeyCode::Char('?'));
    assert!(app.help);
    assert_eq!((press(&mut app, KeyCode::Esc), app.help), (After::Draw, false));
    assert_eq!(press(&mut app, KeyCode::Esc), After::Quit);
    let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
    assert_eq!(app.on_key(release), After::Nothing);
}
