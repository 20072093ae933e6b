//! Connections of those who ask, and of those who only take.

use axum::body::to_bytes;
use axum::extract::Path;
use axum::routing::get;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::arrival::{PIECE, WHOLE};
use super::super::patience::{HEAD as HEAD_TIME, IDLE};
use super::*;

const LONG: Duration = Duration::from_secs(3600);
/// How long `/slow` takes.
const SLOW: Duration = Duration::from_secs(600);

fn pause(name: &str) -> Duration {
    if name == "slow" { SLOW } else { Duration::ZERO }
}

/// Answers `hello` to everything, once it has the body that is posted, and tells what was asked to get.
fn face() -> (Face, UnboundedReceiver<String>) {
    let (tell, asked) = unbounded_channel();
    let hello = move |Path(name): Path<String>| {
        let pause = pause(&name);
        tell.send(name).unwrap();
        async move {
            sleep(pause).await;
            "hello"
        }
    };
    let takes = |Path(name): Path<String>, body: Body| async move {
        sleep(pause(&name)).await;
        to_bytes(body, usize::MAX).await.map(|_| "hello").map_err(|_| StatusCode::BAD_REQUEST)
    };
    (Face::new("test", Router::new().route("/{name}", get(hello).post(takes))), asked)
}

/// A connection that is being served. What is written into it and not read finds hardly any room.
fn connected(stop: &CancellationToken) -> (DuplexStream, JoinHandle<()>, UnboundedReceiver<String>) {
    let (face, asked) = face();
    let (near, far) = duplex(16);
    (near, tokio::spawn(attend(far, face, stop.clone())), asked)
}

fn head(name: &str) -> Vec<u8> {
    format!("GET /{name} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes()
}

fn posting(name: &str, length: usize) -> Vec<u8> {
    format!("POST /{name} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n").into_bytes()
}

/// The answer, which ends with `hello`.
async fn answered(near: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        answer.push(near.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

/// Who asked for anything else would take the answer for the one to what they asked, and not go to another node.
#[tokio::test(start_paused = true)]
async fn a_node_that_starts_answers_who_looks_after_it_and_drops_all_others_until_it_opens() {
    let lobby =
        Router::new().route("/readyz", get(|| async { (StatusCode::SERVICE_UNAVAILABLE, "not hello") }));
    let face = Face::starting("test", lobby);
    let connected = || {
        let (near, far) = duplex(1024);
        (near, tokio::spawn(attend(far, face.clone(), CancellationToken::new())))
    };
    let (mut kept, _serving) = connected();
    kept.write_all(&head("readyz")).await.unwrap();
    let said = answered(&mut kept).await;
    assert!(said.starts_with("HTTP/1.1 503 ") && said.ends_with("not hello"), "{said}");
    for asked in [head("first"), posting("first", 0)] {
        let (mut near, serving) = connected();
        near.write_all(&asked).await.unwrap();
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "");
        serving.await.unwrap();
    }
    face.opens(Router::new().route("/{name}", get(|| async { "hello" })));
    kept.write_all(&head("first")).await.unwrap();
    assert!(answered(&mut kept).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_head_never_ends_is_cut_off() {
    // Nothing more comes of it, or a letter a second.
    for between in [LONG, Duration::from_secs(1)] {
        let (mut near, serving, _asked) = connected(&CancellationToken::new());
        near.write_all(&head("before")).await.unwrap();
        answered(&mut near).await;
        sleep(HEAD_TIME * 2).await;
        let begun = Instant::now();
        near.write_all(b"GET /first HTTP/1.1\r\nx-long: ").await.unwrap();
        let more = async {
            while near.write_all(b"x").await.is_ok() {
                sleep(between).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = timeout(LONG / 2, serving) => ended.expect("it waits for the end of the head").unwrap(),
            () = more => panic!("nobody ends that"),
        }
        let took = begun.elapsed();
        assert!(took >= HEAD_TIME && took < HEAD_TIME * 2, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_long_is_refused_before_it_is_kept() {
    let (near, serving, _asked) = connected(&CancellationToken::new());
    let (mut reading, mut writing) = split(near);
    let (mut sent, mut answer) = (0, String::new());
    let send = async {
        writing.write_all(b"GET /first HTTP/1.1\r\nx-long: ").await.unwrap();
        while writing.write_all(&[b'x'; 1024]).await.is_ok() {
            sent += 1024;
        }
    };
    let (read, ()) = tokio::join!(reading.read_to_string(&mut answer), send);
    read.unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(sent < 2 * HEAD, "{sent} bytes were taken");
    serving.await.unwrap();
}

/// The frames that a server sends up to its answer to a ping, without that: kind, stream and payload.
async fn frames_until_pong(near: &mut DuplexStream) -> Vec<(u8, u32, Vec<u8>)> {
    const PING: u8 = 6;
    let mut frames = Vec::new();
    near.write_all(&[0, 0, 8, PING, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
    loop {
        let [mut length, mut stream] = [[0; 4]; 2];
        near.read_exact(&mut length[1..]).await.unwrap();
        let (kind, _flags) = (near.read_u8().await.unwrap(), near.read_u8().await.unwrap());
        near.read_exact(&mut stream).await.unwrap();
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        near.read_exact(&mut payload).await.unwrap();
        if kind == PING {
            return frames;
        }
        frames.push((kind, u32::from_be_bytes(stream), payload));
    }
}

/// It would be kept beside what is counted as read, for each connection of a stranger.
#[tokio::test(start_paused = true)]
async fn over_http2_too_little_is_taken_of_a_body_that_nobody_reads() {
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    let (mut near, far) = duplex(4096);
    let _serving = tokio::spawn(attend(far, face().0, CancellationToken::new()));
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    near.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
    let mut frames = frames_until_pong(&mut near).await;
    // What it gives room by may come right behind its answer.
    frames.extend(frames_until_pong(&mut near).await);
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let settings = frames.iter().filter(|(kind, ..)| *kind == SETTINGS).flat_map(|(.., all)| all.chunks(6));
    let of_a_stream: Vec<u32> =
        settings.filter(|one| one.starts_with(&[0, 4])).map(|one| number(&one[2..])).collect();
    assert_eq!(of_a_stream, [UNREAD]);
    // So much there is from the beginning (RFC 9113, 6.9.2).
    let more = frames.iter().filter(|(kind, stream, _)| (*kind, *stream) == (WINDOW_UPDATE, 0));
    let of_all = more.fold(65_535, |sum, (.., more)| sum + number(more));
    assert!(of_all <= UNREAD, "{of_all}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_for_the_next_request_and_not_for_ever() {
    let (mut near, serving, _asked) = connected(&CancellationToken::new());
    for name in ["first", "second"] {
        near.write_all(&head(name)).await.unwrap();
        assert!(answered(&mut near).await.starts_with("HTTP/1.1 200 "), "{name}");
        sleep(IDLE - HEAD_TIME / 2).await;
    }
    timeout(HEAD_TIME, serving).await.expect("it is kept for nobody").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_ever_comes_is_not_kept_either() {
    let (_near, serving, _asked) = connected(&CancellationToken::new());
    timeout(HEAD_TIME * 2, serving).await.expect("it is kept for nobody").unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_an_answer_may_wait() {
    let (mut near, _serving, _asked) = connected(&CancellationToken::new());
    let begun = Instant::now();
    near.write_all(&head("slow")).await.unwrap();
    assert!(answered(&mut near).await.starts_with("HTTP/1.1 200 "));
    assert!(begun.elapsed() >= SLOW && SLOW > IDLE * 2);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_is_refused_and_its_connection_ends() {
    let second = Duration::from_secs(1);
    // Nothing more comes of it, or a byte now and then.
    for (between, time) in [(LONG, PIECE), (PIECE - second, WHOLE), (second, WHOLE)] {
        let (near, serving, _asked) = connected(&CancellationToken::new());
        let (mut reading, mut writing) = split(near);
        let begun = Instant::now();
        writing.write_all(&posting("first", 100_000)).await.unwrap();
        let more = async {
            while writing.write_all(b"x").await.is_ok() {
                sleep(between).await;
            }
            std::future::pending::<()>().await;
        };
        let mut answer = String::new();
        tokio::select! {
            read = timeout(LONG / 2, reading.read_to_string(&mut answer)) => {
                read.expect("it waits for the rest of the body").unwrap();
            }
            () = more => panic!("nobody ends that"),
        }
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("send it again"), "{answer}");
        assert!(answer.contains("\"wait_timeout\""), "{answer}");
        let took = begun.elapsed();
        assert!(took >= time && took < time + PIECE, "{took:?}");
        serving.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_makes_progress_is_taken_and_what_its_handler_takes_does_not_count() {
    for name in ["first", "slow"] {
        let (mut near, _serving, _asked) = connected(&CancellationToken::new());
        near.write_all(&posting(name, 8)).await.unwrap();
        for _ in 0..8 {
            sleep(PIECE - Duration::from_secs(1)).await;
            near.write_all(b"x").await.unwrap();
        }
        assert!(answered(&mut near).await.starts_with("HTTP/1.1 200 "), "{name}");
    }
    const { assert!(SLOW.as_secs() > WHOLE.as_secs()) };
}

#[tokio::test(start_paused = true)]
async fn half_a_request_holds_up_no_node_that_stops() {
    let stop = CancellationToken::new();
    let (mut near, serving, mut asked) = connected(&stop);
    near.write_all(b"GET /first HTTP/1.1\r\nx-long: all but the last 16 bytes were read").await.unwrap();
    stop.cancel();
    timeout(HEAD_TIME / 2, serving).await.expect("it waits for the other half").unwrap();
    assert!(asked.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_answers_what_it_was_asked() {
    let stop = CancellationToken::new();
    let (mut near, serving, mut asked) = connected(&stop);
    near.write_all(&head("slow")).await.unwrap();
    assert_eq!(asked.recv().await.as_deref(), Some("slow"));
    stop.cancel();
    assert!(answered(&mut near).await.starts_with("HTTP/1.1 200 "));
    timeout(HEAD_TIME, serving).await.expect("it waits for another request").unwrap();
}

#[tokio::test]
async fn who_finds_no_room_waits_until_another_connection_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ((face, mut asked), stop) = (face(), CancellationToken::new());
    let serving = tokio::spawn(serve(listener, face, 1, stop.clone()));
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(&head("first")).await.unwrap();
    assert_eq!(asked.recv().await.as_deref(), Some("first"));
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(&head("second")).await.unwrap();
    // An answer takes far fewer turns.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(asked.try_recv().is_err(), "two have found room for one");
    drop(first);
    assert_eq!(asked.recv().await.as_deref(), Some("second"));
    stop.cancel();
    timeout(Duration::from_secs(60), serving).await.expect("it goes on").unwrap().unwrap();
}
