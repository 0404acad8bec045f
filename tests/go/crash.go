package main

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The crash run: writers, a watcher and a lease holder work on while the server is killed with -9
// and started again. At the end the whole history is read and must hold every acknowledged write at
// the revision it was acknowledged with; the watcher must have seen exactly that history.

const (
	crashWriters = 8
	crashKeys    = 50
)

// written is one acknowledged change.
type written struct {
	key, value string
	deleted    bool
	revision   int64
}

type crashRun struct {
	server  *Server
	stop    atomic.Bool
	highest atomic.Int64
	mutex   sync.Mutex
	acked   []written
	failure atomic.Value
}

func (r *crashRun) fail(format string, args ...any) {
	r.failure.CompareAndSwap(nil, fmt.Sprintf(format, args...))
	r.stop.Store(true)
}

// observe demands that revisions never go back: what one answer showed, every later call exceeds
// or equals.
func (r *crashRun) observe(before, revision int64) {
	if revision < before {
		r.fail("an answer at revision %d after one at %d", revision, before)
	}
	for {
		seen := r.highest.Load()
		if revision <= seen || r.highest.CompareAndSwap(seen, revision) {
			return
		}
	}
}

func runCrash(s *Server, rounds int, seed int64) int {
	fmt.Printf("crash run: %d rounds, seed %d, endpoint %s\n", rounds, seed, s.Endpoint())
	random := rand.New(rand.NewSource(seed))
	run := &crashRun{server: s}
	s.Start()
	var writers sync.WaitGroup
	for id := range crashWriters {
		writers.Add(1)
		go func() { defer writers.Done(); run.write(id, seed+int64(id)) }()
	}
	watched := make(chan []*clientv3.Event, 1)
	lastRevision := make(chan int64, 1)
	go func() { watched <- run.watch(lastRevision) }()
	for round := range rounds {
		time.Sleep(time.Duration(20+random.Intn(180)) * time.Millisecond)
		if run.stop.Load() {
			break
		}
		s.Kill()
		s.Start()
		if (round+1)%10 == 0 {
			run.mutex.Lock()
			fmt.Printf("round %d: %d acknowledged, revision %d\n", round+1, len(run.acked), run.highest.Load())
			run.mutex.Unlock()
		}
	}
	run.stop.Store(true)
	writers.Wait()
	return run.judge(lastRevision, watched)
}

func (r *crashRun) write(id int, seed int64) {
	client := r.server.Client()
	defer client.Close()
	random := rand.New(rand.NewSource(seed))
	for sequence := 0; !r.stop.Load(); sequence++ {
		key := fmt.Sprintf("cr/%d/%d", id, random.Intn(crashKeys))
		value := fmt.Sprintf("%d-%d", id, sequence)
		before := r.highest.Load()
		change, err := r.change(client, random.Intn(10), key, value)
		if err != nil || change == nil {
			continue
		}
		r.observe(before, change.revision)
		r.mutex.Lock()
		r.acked = append(r.acked, *change)
		r.mutex.Unlock()
	}
}

// change makes one write; nil when nothing was changed.
func (r *crashRun) change(c *clientv3.Client, kind int, key, value string) (*written, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	switch {
	case kind == 0:
		response, err := c.Delete(ctx, key)
		if err != nil || response.Deleted == 0 {
			return nil, err
		}
		return &written{key: key, deleted: true, revision: response.Header.Revision}, nil
	case kind < 4:
		got, err := c.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		revision := int64(0)
		if len(got.Kvs) == 1 {
			revision = got.Kvs[0].ModRevision
		}
		response, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return nil, err
		}
		if !response.Succeeded {
			r.fail("%s was changed by somebody else: only its writer writes it", key)
			return nil, nil
		}
		return &written{key: key, value: value, revision: response.Header.Revision}, nil
	default:
		response, err := c.Put(ctx, key, value)
		if err != nil {
			return nil, err
		}
		return &written{key: key, value: value, revision: response.Header.Revision}, nil
	}
}

// watch follows everything from the beginning, across every crash, up to the revision it is told.
func (r *crashRun) watch(last chan int64) []*clientv3.Event {
	client := r.server.Client()
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := client.Watch(ctx, "cr/", clientv3.WithPrefix(), clientv3.WithRev(1))
	var events []*clientv3.Event
	until := int64(-1)
	timeout := make(<-chan time.Time)
	for {
		select {
		case response, open := <-watch:
			if !open || response.Err() != nil {
				r.fail("the watch ended: %v", response.Err())
				return events
			}
			events = append(events, response.Events...)
		case until = <-last:
			timeout = time.After(30 * time.Second)
		case <-timeout:
			r.fail("the watcher has not reached revision %d", until)
			return events
		}
		if until >= 0 && len(events) > 0 && events[len(events)-1].Kv.ModRevision >= until {
			return events
		}
	}
}

func (r *crashRun) judge(lastRevision chan int64, watched chan []*clientv3.Event) int {
	client := r.server.Client()
	defer client.Close()
	end := put(client, "cr/end", "end").Header.Revision
	lastRevision <- end
	live := <-watched
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var history []*clientv3.Event
	for response := range client.Watch(ctx, "cr/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		history = append(history, response.Events...)
		if len(history) > 0 && history[len(history)-1].Kv.ModRevision >= end {
			break
		}
	}
	r.compare(live, history)
	r.verify(history)
	if failure := r.failure.Load(); failure != nil {
		fmt.Println("FAILED:", failure)
		return 1
	}
	fmt.Printf("passed: %d acknowledged writes, %d events, revision %d\n", len(r.acked), len(history), end)
	return 0
}

// compare demands that the live watcher saw exactly the history: no gap, no repeat.
func (r *crashRun) compare(live, history []*clientv3.Event) {
	if len(live) != len(history) {
		r.fail("the live watcher saw %d events, history has %d", len(live), len(history))
	}
	for i := range min(len(live), len(history)) {
		if live[i].Kv.String() != history[i].Kv.String() || live[i].Type != history[i].Type {
			r.fail("event %d: live %v, history %v", i, live[i], history[i])
			return
		}
	}
}

// verify demands that every acknowledged write is in the history at its revision.
func (r *crashRun) verify(history []*clientv3.Event) {
	at := map[int64]*clientv3.Event{}
	last := int64(0)
	for _, event := range history {
		if event.Kv.ModRevision <= last {
			r.fail("history goes from %d to %d", last, event.Kv.ModRevision)
		}
		last = event.Kv.ModRevision
		at[last] = event
	}
	for _, change := range r.acked {
		event := at[change.revision]
		switch {
		case event == nil:
			r.fail("LOST: %+v was acknowledged and is not there", change)
		case string(event.Kv.Key) != change.key, string(event.Kv.Value) != change.value,
			(event.Type == mvccpb.DELETE) != change.deleted:
			r.fail("CHANGED: %+v was acknowledged, history has %v", change, event)
		}
	}
}
