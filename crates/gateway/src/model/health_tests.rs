use super::*;

#[test]
fn a_disk_that_does_not_answer_is_a_problem_until_it_does() {
    let health = Health::new(vec!["a row is damaged".to_owned()], 1, 0);
    assert_eq!(health.problems().len(), 1);
    health.set_stalled(true);
    health.set_stalled(true);
    assert!(health.is_stalled());
    let problems = health.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[1].contains("disk has not answered"), "{problems:?}");
    // It may be refused as well, which is another thing.
    health.cannot_write("it is full".into());
    assert_eq!(health.problems().len(), 3);
    health.set_stalled(false);
    assert!(!health.problems().iter().any(|problem| problem.contains("answered")));
}
