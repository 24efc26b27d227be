//! Start, restart, stop, drop.

use shikiri_testpg::{Cluster, Installed};

use crate::world::{query, server_pid, serves};

#[test]
fn a_cluster_answers_at_its_url_and_only_to_its_password() {
    let Some(installed) = Installed::find_or_skip("a_cluster_answers_at_its_url") else { return };
    let cluster = Cluster::start(&installed).expect("a cluster");
    let url = cluster.url();

    assert_eq!(query(&installed, &url, "show max_connections"), Ok("200".to_owned()));
    assert_eq!(query(&installed, &url, "show password_encryption"), Ok("scram-sha-256".into()));
    assert_eq!(query(&installed, &url, "show fsync"), Ok("on".to_owned()));
    let data_dir = cluster.data_dir().display().to_string();
    assert_eq!(query(&installed, &url, "show unix_socket_directories"), Ok(data_dir));

    let password = url.split([':', '@']).nth(2).expect("a password");
    let wrong = url.replace(password, "wrong");
    let refusal = query(&installed, &wrong, "select 1").expect_err("a refusal");
    assert!(refusal.contains("password authentication failed"), "{refusal}");
    assert!(cluster.log().contains("ready to accept connections"), "{}", cluster.log());
    assert!(!format!("{cluster:?}").contains(password), "the password is not for output");
}

#[test]
fn committed_rows_and_the_url_survive_every_restart() {
    let Some(installed) = Installed::find_or_skip("survive_every_restart") else { return };
    let cluster = Cluster::start(&installed).expect("a cluster");
    let url = cluster.url();
    let count = || query(&installed, &url, "select count(*) from kept");
    query(&installed, &url, "create table kept (n int); insert into kept values (1)").expect("sql");
    let first_server = server_pid(&cluster.data_dir());

    cluster.restart().expect("a restart");
    assert_eq!(count(), Ok("1".to_owned()));
    assert_ne!(server_pid(&cluster.data_dir()), first_server);

    query(&installed, &url, "insert into kept values (2)").expect("sql");
    cluster.restart_immediate().expect("an immediate restart");
    assert_eq!(count(), Ok("2".to_owned()));
    assert!(cluster.log().contains("automatic recovery in progress"), "{}", cluster.log());

    cluster.stop().expect("a stop");
    cluster.stop().expect("stopping twice");
    assert!(count().expect_err("no server answers").contains("Connection refused"));
    cluster.restart().expect("a start after a stop");
    assert_eq!(count(), Ok("2".to_owned()));
}

#[test]
fn dropping_a_cluster_ends_the_server_and_removes_the_folder() {
    let Some(installed) = Installed::find_or_skip("dropping_a_cluster") else { return };
    let kept = Cluster::start(&installed).expect("a cluster");
    let dropped = Cluster::start(&installed).expect("a second cluster at the same time");
    let data_dir = dropped.data_dir();
    let server = server_pid(&data_dir);
    assert!(serves(server, &data_dir));

    drop(dropped);

    assert!(!serves(server, &data_dir));
    assert!(!data_dir.parent().expect("a folder").exists());
    assert_eq!(query(&installed, &kept.url(), "select 1"), Ok("1".to_owned()));
}
