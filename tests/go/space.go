package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	spaceWriters  = 8
	spaceKeys     = 20
	spaceBytes    = 100_000
	spacePatience = 60 * time.Second
)

// runFill overwrites 160 keys of 100 kB in turn, `rounds` times each, compacts every second, and
// waits wherever the server says that the disk is full: as long as it takes, but never so long that
// no writer at all gets on. Every acknowledged write is noted in
// `noted`, which an earlier run may have begun.
func runFill(endpoint, noted string, rounds int) int {
	c := (&Server{Fixed: endpoint}).Client()
	defer c.Close()
	acked := readNotes(noted)
	var mutex sync.Mutex
	var refused atomic.Int64
	var failure atomic.Value
	var progress atomic.Int64
	progress.Store(time.Now().UnixNano())
	stuck := func() bool { return time.Since(time.Unix(0, progress.Load())) > spacePatience }
	stop := make(chan struct{})
	go compactEverySecond(c, stop)
	var writers sync.WaitGroup
	for id := range spaceWriters {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for turn := range rounds * spaceKeys {
				key := fmt.Sprintf("fd/%d/%d", id, turn%spaceKeys)
				mutex.Lock()
				sequence := acked[key] + 1
				mutex.Unlock()
				value := fmt.Sprintf("%d-%s", sequence, strings.Repeat("v", spaceBytes))
				for {
					_, err := c.Put(context.Background(), key, value)
					if err == nil {
						progress.Store(time.Now().UnixNano())
						break
					}
					if err != rpctypes.ErrNoSpace || stuck() {
						failure.Store(fmt.Sprintf("put %s: %v", key, err))
						return
					}
					refused.Add(1)
					time.Sleep(100 * time.Millisecond)
				}
				mutex.Lock()
				acked[key] = sequence
				mutex.Unlock()
			}
		}()
	}
	writers.Wait()
	close(stop)
	writeNotes(noted, acked)
	fmt.Printf("%d puts of 100 kB, %d times told to wait\n", rounds*spaceKeys*spaceWriters, refused.Load())
	if text := failure.Load(); text != nil {
		fmt.Println("FAILED:", text)
		return 1
	}
	return 0
}

func compactEverySecond(c *clientv3.Client, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
			if got, err := c.Get(context.Background(), "fd"); err == nil {
				_, _ = c.Compact(context.Background(), got.Header.Revision)
			}
		}
	}
}

// runHolds checks that the server has every acknowledged write of `noted`, or a later one.
func runHolds(endpoint, noted string) int {
	c := (&Server{Fixed: endpoint}).Client()
	defer c.Close()
	for key, sequence := range readNotes(noted) {
		got, err := c.Get(context.Background(), key)
		must(err)
		if len(got.Kvs) != 1 {
			fmt.Printf("FAILED: %s is gone, it was acknowledged\n", key)
			return 1
		}
		text, padding, _ := strings.Cut(string(got.Kvs[0].Value), "-")
		if found, _ := strconv.Atoi(text); found < sequence || len(padding) != spaceBytes {
			fmt.Printf("FAILED: %s holds %d (%d bytes), %d was acknowledged\n", key, found, len(padding), sequence)
			return 1
		}
	}
	return 0
}

func readNotes(path string) map[string]int {
	acked := map[string]int{}
	file, err := os.Open(path)
	if err != nil {
		return acked
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, text, _ := strings.Cut(lines.Text(), " ")
		sequence, err := strconv.Atoi(text)
		must(err)
		acked[key] = sequence
	}
	return acked
}

func writeNotes(path string, acked map[string]int) {
	var text strings.Builder
	for key, sequence := range acked {
		fmt.Fprintf(&text, "%s %d\n", key, sequence)
	}
	must(os.WriteFile(path, []byte(text.String()), 0o600))
}
