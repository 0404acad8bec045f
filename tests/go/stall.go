package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The most a server may grow by while a client holds a list of 1 GB and does not read.
const stallGrowthMax = 64 << 20

// runStall fills a prefix with 1 GB, begins to list it, unary and as a stream, and stops reading.
// The server must neither grow nor slow down for others, and must still answer when read again.
func runStall(endpoint string, pid int) int {
	s := &Server{Fixed: endpoint}
	c := s.Client()
	defer c.Close()
	value := strings.Repeat("x", 1<<20)
	for i := range 1000 {
		put(c, fmt.Sprintf("st/%04d", i), value)
	}
	before := residentBytes(pid)
	var held []clientv3.GetStreamChan
	for range 3 {
		reader := s.Client()
		defer reader.Close()
		stream, err := reader.GetStream(context.Background(), "st/", clientv3.WithPrefix())
		must(err)
		<-stream
		held = append(held, stream)
	}
	worst := time.Duration(0)
	for i := range 200 {
		start := time.Now()
		put(c, fmt.Sprintf("su/%d", i), "v")
		worst = max(worst, time.Since(start))
		time.Sleep(5 * time.Millisecond)
	}
	grown := residentBytes(pid) - before
	fmt.Printf("three stalled lists of 1 GB: grew by %d MiB, slowest put %v\n", grown>>20, worst)
	if grown > stallGrowthMax {
		fmt.Println("FAILED: the server grew")
		return 1
	}
	count := 0
	for response := range held[0] {
		must(response.Err())
		count += len(response.RangeResponse.Kvs)
	}
	if count < 900 {
		fmt.Printf("FAILED: a list that was read again gave %d further keys\n", count)
		return 1
	}
	return 0
}

func residentBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(err)
	var size, resident int64
	_, err = fmt.Sscan(string(text), &size, &resident)
	must(err)
	return resident * int64(os.Getpagesize())
}
