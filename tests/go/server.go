package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Server is one server process and its data directory.
type Server struct {
	Binary string
	Dir    string
	Port   int
	Unix   bool
	Extra  []string
	// Fixed is the endpoint of a server that somebody else runs.
	Fixed  string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Endpoint is where clients connect.
func (s *Server) Endpoint() string {
	if s.Fixed != "" {
		return s.Fixed
	}
	if s.Unix {
		return "unix://" + filepath.Join(s.Dir, "sock")
	}
	return fmt.Sprintf("http://127.0.0.1:%d", s.Port)
}

// Start runs the server and waits until it answers.
func (s *Server) Start() {
	tcp := fmt.Sprintf("http://127.0.0.1:%d", s.Port)
	peer := fmt.Sprintf("http://127.0.0.1:%d", s.Port+1)
	args := []string{
		"--name=m", "--data-dir=" + filepath.Join(s.Dir, "data"),
		"--listen-client-urls=" + tcp + ",unix://" + filepath.Join(s.Dir, "sock"),
		"--advertise-client-urls=" + tcp,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=m=" + peer,
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	defer log.Close()
	s.cmd = exec.Command(s.Binary, append(args, s.Extra...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	must(s.cmd.Start())
	s.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(s.cmd, s.exited)
	s.awaitReady()
}

func (s *Server) awaitReady() {
	client := s.Client()
	defer client.Close()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := client.Get(ctx, "ready")
		cancel()
		if err == nil {
			return
		}
		select {
		case <-s.exited:
			panic("the server ended while it started; see " + filepath.Join(s.Dir, "log"))
		case <-time.After(20 * time.Millisecond):
		}
	}
	panic("the server does not answer; see " + filepath.Join(s.Dir, "log"))
}

// Client opens a client with limits wide enough for every check.
func (s *Server) Client() *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{s.Endpoint()},
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30))},
	})
	must(err)
	return client
}

// Stop ends the server with SIGTERM and waits.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL and waits.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(signal)
	select {
	case <-s.exited:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
		panic("the server did not end within 20 s of " + signal.String())
	}
	s.cmd = nil
}
