//! Streams that another program has put ahead of the last position.

use redis::Value;

use super::*;

/// Everything that there is but the last position: of streams what they hold.
async fn contents(connection: &mut MultiplexedConnection) -> Vec<(String, Value)> {
    let mut keys: Vec<String> = connection.keys("*").await.unwrap();
    keys.retain(|key| key != POSITION);
    keys.sort();
    let mut contents = Vec::with_capacity(keys.len());
    for key in keys {
        let of: String = cmd("TYPE").arg(&key).query_async(connection).await.unwrap();
        let read = match of.as_str() {
            "stream" => cmd("XRANGE").arg(&key).arg("-").arg("+").to_owned(),
            _ => cmd("DUMP").arg(&key).to_owned(),
        };
        contents.push((key, read.query_async(connection).await.unwrap()));
    }
    contents
}

/// The entry is still there, or was taken out again: then only the stream itself knows of it.
#[tokio::test]
async fn a_stream_that_another_program_has_put_ahead_is_named_with_what_helps_and_nothing_is_written() {
    const AHEAD: u64 = 99_999_999_999;
    for make in [Make::Redis, Make::Valkey] {
        let server = Server::start_as(make, LASTING).await.unwrap();
        let mut connection = server.connection().await.unwrap();
        for (stream, is_left) in [("events", true), ("events", false), ("outbox", true), ("outbox", false)] {
            let (stream, store) = (key(stream), alone(&server).await);
            let ahead = format!("{AHEAD}-0");
            let add = cmd("XADD").arg(&stream).arg(&ahead).arg("scribble").arg(1).to_owned();
            let _: String = add.query_async(&mut connection).await.unwrap();
            if !is_left {
                let _: i64 = cmd("XDEL").arg(&stream).arg(&ahead).query_async(&mut connection).await.unwrap();
            }
            let before = contents(&mut connection).await;
            let next = Batch { outbox: sending().outbox, ..batch(1) };
            let said = refusal(&store, next.clone(), &stream).await;
            assert_eq!(contents(&mut connection).await, before, "{stream}");

            let position: u64 = connection.get(POSITION).await.unwrap();
            let (shows, raises) =
                (format!("XRANGE {stream} {position} +"), format!("INCRBY {POSITION} {}", AHEAD - position));
            assert!(said.contains(&shows) && said.contains(&raises), "{said}");
            let _: i64 = cmd("XDEL").arg(&stream).arg(&ahead).query_async(&mut connection).await.unwrap();
            let _: u64 = connection.incr(POSITION, AHEAD - position).await.unwrap();
            assert_eq!(store.commit(store.fence(&pool()), next.into()).await, Ok(Version(2)), "{make:?}");
        }
    }
}

/// As far as that the position cannot be raised: there would be no room for those behind it.
#[tokio::test]
async fn a_stream_that_is_ahead_for_ever_is_to_be_restored() {
    let (server, mut connection) = started().await;
    for ahead in ["8796093022208-0", "9007199254740993-0", "18446744073709551615-1"] {
        let (stream, store) = (key("events"), alone(&server).await);
        let add = cmd("XADD").arg(&stream).arg(ahead).arg("scribble").arg(1).to_owned();
        let _: String = add.query_async(&mut connection).await.unwrap();
        let said = refusal(&store, batch(1), &stream).await;
        assert!(said.contains("restore it from a copy") && !said.contains("INCRBY"), "{said}");
    }
}
