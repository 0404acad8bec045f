// Black-box checks through the real Go client. The same program runs against this project's server
// and against etcd, so that what it demands is what etcd gives.
//
//	client checks -server BINARY [-flags "..."]     every check of checks.go
//	client crash  -server BINARY -rounds N          kill -9 under a mixed load
//	client stall  -endpoint URL -pid PID            lists of 1 GB that nobody reads on
//	client fill   -endpoint URL -noted FILE -rounds N  overwrites 16 MB N times on a full disk
//	client holds  -endpoint URL -noted FILE         what fill noted is there
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: client checks|crash -server BINARY [flags]")
		os.Exit(2)
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	binary := flags.String("server", "", "server binary that takes etcd's flags")
	extra := flags.String("flags", "", "further flags for it, separated by spaces")
	port := flags.Int("port", 24790, "client port; the peer port is the next one")
	unix := flags.Bool("unix", false, "connect over the Unix socket instead of TCP")
	rounds := flags.Int("rounds", 10, "crash: how many kills")
	seed := flags.Int64("seed", time.Now().UnixNano(), "crash: seed of the load")
	endpoint := flags.String("endpoint", "", "stall, fill, holds: a running server")
	pid := flags.Int("pid", 0, "stall: its process")
	noted := flags.String("noted", "", "fill, holds: file of what was acknowledged")
	only := flags.String("only", "", "checks: only those whose name contains this")
	_ = flags.Parse(os.Args[2:])

	switch os.Args[1] {
	case "stall":
		os.Exit(runStall(*endpoint, *pid))
	case "fill":
		os.Exit(runFill(*endpoint, *noted, *rounds))
	case "holds":
		os.Exit(runHolds(*endpoint, *noted))
	}
	dir, err := os.MkdirTemp("", "ringbolt-client")
	must(err)
	server := &Server{Binary: *binary, Dir: dir, Port: *port, Unix: *unix, Extra: strings.Fields(*extra)}
	code := 1
	switch os.Args[1] {
	case "checks":
		code = runChecks(server, *only)
	case "crash":
		code = runCrash(server, *rounds, *seed)
	default:
		fmt.Fprintln(os.Stderr, "no command", os.Args[1])
	}
	server.Kill()
	if code == 0 {
		_ = os.RemoveAll(dir)
	} else {
		fmt.Println("data and log are kept in", dir)
	}
	os.Exit(code)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
