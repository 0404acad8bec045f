package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// collect reads events until there are `count`, and demands rising revisions.
func collect(watch clientv3.WatchChan, count int) []*clientv3.Event {
	var events []*clientv3.Event
	timeout := time.After(30 * time.Second)
	last := int64(0)
	for len(events) < count {
		select {
		case response, open := <-watch:
			demand(open, "the watch ended after %d events", len(events))
			must(response.Err())
			for _, event := range response.Events {
				demand(event.Kv.ModRevision >= last, "revision %d after %d", event.Kv.ModRevision, last)
				last = event.Kv.ModRevision
				events = append(events, event)
			}
		case <-timeout:
			panic(fmt.Sprintf("%d of %d events came", len(events), count))
		}
	}
	demand(len(events) == count, "%d events, want %d", len(events), count)
	return events
}

func watchLive(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	watch := c.Watch(ctx, "wl/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	demand((<-watch).Created, "no created answer")
	put(c, "wl/a", "1")
	put(c, "wl/a", "2")
	_, err := c.Delete(ctx, "wl/a")
	must(err)
	put(c, "other", "x")
	put(c, "wl/b", "3")
	events := collect(watch, 4)
	demand(events[0].IsCreate() && events[0].PrevKv == nil, "event 0: %v", events[0])
	demand(events[1].IsModify() && string(events[1].PrevKv.Value) == "1", "event 1: %v", events[1])
	demand(events[2].Type == mvccpb.DELETE && string(events[2].PrevKv.Value) == "2", "event 2: %v", events[2])
	demand(string(events[3].Kv.Key) == "wl/b", "event 3: %v", events[3])
	put(c, "wl/t0", "0")
	collect(watch, 1)
	_, err = c.Txn(ctx).Then(clientv3.OpPut("wl/t1", "1"), clientv3.OpPut("wl/t2", "2"), clientv3.OpDelete("wl/t0")).Commit()
	must(err)
	response := <-watch
	demand(len(response.Events) == 3, "a txn came as %d events", len(response.Events))
}

func watchHistory(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	first := put(c, "wh/0", "v").Header.Revision
	for i := 1; i < 2500; i++ {
		put(c, fmt.Sprintf("wh/%d", i%100), fmt.Sprint(i))
	}
	watch := c.Watch(ctx, "wh/", clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithPrevKV())
	go func() {
		for i := range 100 {
			put(c, "wh/late", fmt.Sprint(i))
		}
	}()
	events := collect(watch, 2600)
	for i, event := range events {
		if i > 0 {
			demand(event.Kv.ModRevision == events[i-1].Kv.ModRevision+1, "a gap before %d", event.Kv.ModRevision)
		}
		demand(event.IsCreate() == (event.PrevKv == nil), "prev_kv of %v", event)
	}
}

func watchProgress(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	ctx = clientv3.WithRequireLeader(ctx)
	watch := c.Watch(ctx, "wp/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	demand((<-watch).Created, "no created answer")
	revision := put(c, "elsewhere", "1").Header.Revision
	for i := range 50 {
		put(c, fmt.Sprintf("wp/%d", i), "v")
	}
	must(c.RequestProgress(ctx))
	seen := int64(0)
	for response := range watch {
		must(response.Err())
		if response.IsProgressNotify() {
			demand(response.Header.Revision >= revision, "progress at %d, written %d", response.Header.Revision, revision)
			demand(response.Header.Revision == seen, "progress at %d before event %d", response.Header.Revision, seen)
			return
		}
		seen = response.Events[len(response.Events)-1].Kv.ModRevision
		if seen == revision+50 {
			must(c.RequestProgress(ctx))
		}
	}
}

func watchFilters(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	start := put(c, "elsewhere", "1").Header.Revision + 1
	put(c, "wf/a", "1")
	_, err := c.Delete(ctx, "wf/a")
	must(err)
	puts := collect(c.Watch(ctx, "wf/a", clientv3.WithRev(start), clientv3.WithFilterDelete()), 1)
	demand(puts[0].Type == mvccpb.PUT, "filtered %v", puts[0])
	deletes := collect(c.Watch(ctx, "wf/a", clientv3.WithRev(start), clientv3.WithFilterPut()), 1)
	demand(deletes[0].Type == mvccpb.DELETE, "filtered %v", deletes[0])
}

func watchThousand(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	var watches []clientv3.WatchChan
	for i := range 1000 {
		watches = append(watches, c.Watch(ctx, fmt.Sprintf("wt/%d", i), clientv3.WithCreatedNotify()))
	}
	for _, watch := range watches {
		demand((<-watch).Created, "no created answer")
	}
	for i := range 1000 {
		put(c, fmt.Sprintf("wt/%d", i), fmt.Sprint(i))
	}
	for i, watch := range watches {
		event := collect(watch, 1)[0]
		demand(string(event.Kv.Value) == fmt.Sprint(i), "watcher %d saw %s", i, event.Kv.Value)
	}
}

func watchCompacted(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	old := put(c, "wc/a", "1").Header.Revision
	put(c, "wc/a", "2")
	live := c.Watch(ctx, "wc/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	demand((<-live).Created, "no created answer")
	last := put(c, "wc/a", "3").Header.Revision
	_, err := c.Compact(ctx, last)
	must(err)
	response := <-c.Watch(ctx, "wc/a", clientv3.WithRev(old))
	demand(response.CompactRevision >= last, "compact revision %d, want %d", response.CompactRevision, last)
	demandError(response.Err(), rpctypes.ErrCompacted)
	put(c, "wc/a", "4")
	events := collect(live, 2)
	demand(string(events[1].Kv.Value) == "4", "a live watcher lost an event to a compaction")
}

func watchAcrossRestart(s *Server, c *clientv3.Client) {
	if memoryMode(s) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	watch := c.Watch(ctx, "wr/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	demand((<-watch).Created, "no created answer")
	put(c, "wr/a", "1")
	collect(watch, 1)
	s.Stop()
	s.Start()
	other := s.Client()
	defer other.Close()
	for i := range 20 {
		put(other, "wr/a", fmt.Sprint(i))
	}
	for i, event := range collect(watch, 20) {
		demand(string(event.Kv.Value) == fmt.Sprint(i), "event %d after a restart is %v", i, event)
	}
}
