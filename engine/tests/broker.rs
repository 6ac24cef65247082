//! The embedded broker against the real nats-server: it starts, serves, survives what is done to it, and leaves nothing behind.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use async_nats::Client;
use engine::broker::{Access, Auth, BrokerError, Cluster, Exit, Settings, Storage, Store, Tls};
use engine::env::Env;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const READY: Duration = Duration::from_secs(60);

fn settings(members: u8, store: Store) -> Settings {
    // Longer than the default: several suites may share two cores.
    Settings { store, ready_within: READY, ..Settings::new(members) }
}

async fn start(members: u8, store: Store) -> Cluster {
    Cluster::start(settings(members, store), Env::system()).await.expect("the cluster starts")
}

/// Connects. A server ends a connection whose client is slow to say who it is.
async fn connect(access: &Access) -> Client {
    let env = Env::system();
    let deadline = env.now() + READY;
    loop {
        let options = access.connect_options().await.expect("no files are named");
        match options.connect(access.urls()).await {
            Ok(client) => return client,
            Err(error) => assert!(env.now() < deadline, "no client connects: {error}"),
        }
    }
}

/// Starts a cluster in a directory that another has just left: a process that is being started at this moment, by another test
/// for instance, has its lock for as long as that takes.
async fn start_again(members: u8, directory: &Path) -> Result<Cluster, BrokerError> {
    let env = Env::system();
    let deadline = env.now() + READY;
    loop {
        match Cluster::start(settings(members, Store::Kept(directory.to_owned())), env.clone()).await {
            Err(BrokerError::InUse { .. }) if env.now() < deadline => {}
            told => return told,
        }
    }
}

/// Asks until there is an answer: a request right after a change of leader may draw none.
async fn ask(client: &Client, subject: &str, body: Value) -> Value {
    let env = Env::system();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let deadline = env.now() + READY;
    loop {
        let request = client.request(subject.to_owned(), body.clone().into());
        match env.within(env.now() + Duration::from_secs(1), request).await {
            Ok(Ok(answer)) => return serde_json::from_slice(&answer.payload).expect("an answer in JSON"),
            unanswered => assert!(env.now() < deadline, "{subject}: {unanswered:?}"),
        }
    }
}

async fn create_stream(client: &Client, replicas: usize, storage: &str) {
    let stream = json!({"name": "S", "subjects": ["s"], "num_replicas": replicas, "storage": storage});
    let created = ask(client, "$JS.API.STREAM.CREATE.S", stream).await;
    assert!(created["error"].is_null(), "{created}");
}

/// Has a message acknowledged.
async fn write(client: &Client) {
    let ack = ask(client, "s", json!(1)).await;
    assert!(ack["seq"].is_u64(), "{ack}");
}

async fn first_message(client: &Client) -> Value {
    ask(client, "$JS.API.STREAM.MSG.GET.S", json!({"seq": 1})).await["message"]["subject"].clone()
}

/// The state letter of a process; `None` when it is gone or only waits to be reaped by someone.
fn state(pid: u32) -> Option<char> {
    state_in(&Path::new("/proc").join(pid.to_string()))
}

/// The state letters of a process's threads.
fn states(pid: u32) -> Vec<char> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    threads.filter_map(|thread| state_in(&thread.expect("an entry").path())).collect()
}

/// What `proc_pid_stat(5)` has in its third place.
fn state_in(directory: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(directory.join("stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).filter(|state| *state != 'Z')
}

fn pids(cluster: &Cluster) -> Vec<u32> {
    cluster.members().iter().map(|member| member.pid().expect("every member runs")).collect()
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("the file is there").permissions().mode() & 0o777
}

async fn until(env: &Env, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = env.now() + Duration::from_secs(20);
    while !holds() {
        assert!(env.now() < deadline, "not in time: {what}");
        env.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_member_keeps_its_data_and_its_port_over_a_kill() {
    let cluster = start(1, Store::Temporary).await;
    let directory = cluster.directory().to_owned();
    assert_eq!(cluster.storage(), Storage::File);
    assert_eq!(mode(&directory.join("n1")), 0o700);
    assert_eq!(mode(&directory.join("n1/nats.conf")), 0o600);

    let client = connect(cluster.access()).await;
    create_stream(&client, 1, "file").await;
    write(&client).await;

    let (member, before) = (&cluster.members()[0], pids(&cluster)[0]);
    let url = member.client_url();
    member.kill().await.unwrap();
    assert!(!member.is_running());
    assert!(matches!(member.pause().await, Err(BrokerError::Running { running: false, .. })));
    let exits = cluster.exits();
    let [Exit { member: name, run: 1, pid, status, expected: true, last_lines, .. }] = exits.as_slice() else {
        panic!("one end that was asked for: {exits:?}")
    };
    assert_eq!((name.as_str(), *pid, status.as_str()), ("n1", before, "signal: 9 (SIGKILL)"));
    assert!(!last_lines.is_empty());

    member.start().await.unwrap();
    assert!(matches!(member.start().await, Err(BrokerError::Running { running: true, .. })));
    assert_eq!(member.client_url(), url);
    cluster.ready(READY).await.unwrap();
    assert_eq!(first_message(&connect(cluster.access()).await).await, "s");

    let after = pids(&cluster)[0];
    cluster.stop().await.unwrap();
    assert_eq!((state(before), state(after)), (None, None));
    assert!(!directory.exists());
}

#[tokio::test]
async fn three_members_acknowledge_report_a_crash_and_leave_nothing_behind() {
    let env = Env::system();
    let cluster = start(3, Store::Temporary).await;
    let client = connect(cluster.access()).await;
    create_stream(&client, 3, "file").await;
    write(&client).await;

    // A member that leads nothing, so that nobody has to wait for an election.
    let leads_stream = ask(&client, "$JS.API.STREAM.INFO.S", Value::Null).await["cluster"]["leader"].clone();
    let system = connect(cluster.system_access()).await;
    let jsz = ask(&system, "$SYS.REQ.SERVER.PING.JSZ", Value::Null).await;
    let leads_meta = &jsz["data"]["meta_cluster"]["leader"];
    let leads = |name: &str| leads_stream == name || *leads_meta == name;
    let victim = cluster.members().iter().find(|member| !leads(member.name())).unwrap();

    let mut feed = cluster.exit_feed();
    feed.borrow_and_update();
    let pid = victim.pid().unwrap();
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    feed.changed().await.unwrap();
    let exit = feed.borrow()[0].clone();
    assert_eq!((exit.member.as_str(), exit.pid, exit.expected), (victim.name(), pid, false));
    assert_eq!(exit.status, "signal: 9 (SIGKILL)");
    assert!(exit.last_lines.iter().any(|line| line.contains("[INF]")), "{:?}", exit.last_lines);

    // It stays down, and the cluster says what is missing.
    let deadline = env.now() + READY;
    loop {
        let Err(BrokerError::NotReady { standing, .. }) = cluster.ready(Duration::from_secs(1)).await else {
            panic!("a cluster without one of its members is not ready")
        };
        if standing.starts_with("2 of 3 members") {
            break;
        }
        // One of the others took its time to answer.
        assert!(env.now() < deadline, "{standing}");
    }

    victim.start().await.unwrap();
    cluster.ready(READY).await.unwrap();
    let through = Access::external(&cluster.access().exposed(), None, Tls::default()).unwrap();
    assert_eq!(&through, cluster.access());
    assert_eq!(first_message(&connect(&through).await).await, "s");

    let pid = victim.pid().unwrap();
    for round in 0..20 {
        victim.pause().await.unwrap();
        let states = states(pid);
        assert!(states.len() > 1 && states.iter().all(|state| *state == 'T'), "round {round}: {states:?}");
        victim.resume().unwrap();
        until(&env, "continued", || state(pid) != Some('T')).await;
    }
    victim.pause().await.unwrap();
    victim.terminate().await.unwrap();
    assert_eq!(cluster.exits()[1].status, "exit status: 0", "a frozen member ends in an orderly way");
    victim.start().await.unwrap();

    victim.pause().await.unwrap();
    let (pids, directory) = (pids(&cluster), cluster.directory().to_owned());
    drop(cluster);
    for pid in pids {
        // Not even a zombie: this process would be the one to reap it.
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
    }
    assert!(!directory.exists());
}

#[tokio::test]
async fn a_kept_directory_serves_one_cluster_at_a_time_and_one_size() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("kept");
    let kept = || Store::Kept(directory.clone());
    let cluster = start(1, kept()).await;
    let client = connect(cluster.access()).await;
    create_stream(&client, 1, "file").await;
    write(&client).await;

    let second = Cluster::start(settings(1, kept()), Env::system()).await.map(drop).unwrap_err();
    let BrokerError::InUse { path, holder } = &second else { panic!("{second}") };
    assert_eq!((path, holder), (&directory, &std::process::id().to_string()));

    cluster.stop().await.unwrap();
    let other = start_again(3, &directory).await.map(drop).unwrap_err();
    assert!(matches!(other, BrokerError::OtherSize { asked: 3, .. }), "{other}");
    assert!(other.to_string().ends_with("holds a cluster of 1 members, not 3"), "{other}");

    let cluster = start_again(1, &directory).await.expect("the cluster starts");
    assert_eq!(first_message(&connect(cluster.access()).await).await, "s");
}

#[tokio::test]
async fn nobody_gets_in_without_the_password() {
    let cluster = start(1, Store::Memory).await;
    assert_eq!(cluster.storage(), Storage::Memory);
    let exposed = cluster.access().exposed();
    let Auth::Password { password, .. } = cluster.access().auth() else { panic!("a user with a password") };
    assert_eq!(password.expose().len(), 32);
    assert!(!format!("{:?}", cluster.access()).contains(password.expose()));

    let guessed = exposed.replace(password.expose(), "guessed");
    let open = cluster.access().urls().join(",");
    for urls in [guessed, open] {
        let access = Access::external(&urls, None, Tls::default()).unwrap();
        let options = access.connect_options().await.unwrap();
        let refused = options.connect(access.urls()).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), async_nats::ConnectErrorKind::AuthorizationViolation, "{urls}: {refused}");
    }
    create_stream(&connect(cluster.access()).await, 1, "memory").await;
}

#[tokio::test]
async fn sizes_without_a_majority_to_lose_are_refused() {
    for (members, rule) in [(0, "at least one"), (2, "two members have no majority to lose"), (4, "even"), (7, "five")]
    {
        let error = Cluster::start(settings(members, Store::Temporary), Env::system()).await.map(drop).unwrap_err();
        assert!(matches!(error, BrokerError::Settings(_)));
        assert!(error.to_string().contains(rule), "{members}: {error}");
    }
}
