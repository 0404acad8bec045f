package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// check is one named demand. It panics with a reason when it is not met.
type check struct {
	name string
	run  func(s *Server, c *clientv3.Client)
}

var checks = []check{
	{"put-get", putGet},
	{"put-options", putOptions},
	{"range-options", rangeOptions},
	{"range-stream", rangeStream},
	{"delete", deletes},
	{"txn", transactions},
	{"txn-errors", transactionErrors},
	{"compaction", compaction},
	{"watch-live", watchLive},
	{"watch-history", watchHistory},
	{"watch-progress", watchProgress},
	{"watch-filters", watchFilters},
	{"watch-1000-on-one-stream", watchThousand},
	{"watch-compacted-while-watching", watchCompacted},
	{"watch-across-restart", watchAcrossRestart},
	{"lease", leases},
	{"lease-expiry", leaseExpiry},
	{"lease-across-restart", leaseAcrossRestart},
	{"large-responses", largeResponses},
	{"large-request", largeRequest},
	{"cancelled-contexts", cancelledContexts},
	{"concurrent-increments", concurrentIncrements},
	{"maintenance", maintenance},
	{"rpcs-not-served", notServed},
}

func runChecks(s *Server, only string) int {
	s.Start()
	failed := 0
	for _, check := range checks {
		if !strings.Contains(check.name, only) {
			continue
		}
		start := time.Now()
		reason := runOne(s, check)
		if reason != nil {
			failed++
			fmt.Printf("FAILED %-32s %v\n", check.name, reason)
			continue
		}
		fmt.Printf("passed %-32s %v\n", check.name, time.Since(start).Round(time.Millisecond))
	}
	if failed > 0 {
		return 1
	}
	s.Stop()
	return 0
}

func runOne(s *Server, check check) (reason any) {
	client := s.Client()
	defer client.Close()
	defer func() {
		if reason = recover(); reason != nil && os.Getenv("TRACE") != "" {
			debug.PrintStack()
		}
	}()
	check.run(s, client)
	return nil
}

func demand(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

func demandError(err, want error) {
	demand(errors.Is(err, want) || (err != nil && err.Error() == want.Error()), "error %v, want %v", err, want)
}

func background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func put(c *clientv3.Client, key, value string, options ...clientv3.OpOption) *clientv3.PutResponse {
	ctx, cancel := background()
	defer cancel()
	response, err := c.Put(ctx, key, value, options...)
	must(err)
	return response
}

func get(c *clientv3.Client, key string, options ...clientv3.OpOption) *clientv3.GetResponse {
	ctx, cancel := background()
	defer cancel()
	response, err := c.Get(ctx, key, options...)
	must(err)
	return response
}

func keysOf(kvs []*mvccpb.KeyValue) string {
	var names []string
	for _, kv := range kvs {
		names = append(names, string(kv.Key))
	}
	return strings.Join(names, " ")
}

func putGet(_ *Server, c *clientv3.Client) {
	first := put(c, "pg/a", "1")
	second := put(c, "pg/a", "2")
	demand(second.Header.Revision == first.Header.Revision+1, "revisions %d, %d", first.Header.Revision, second.Header.Revision)
	kv := get(c, "pg/a").Kvs[0]
	demand(string(kv.Value) == "2" && kv.Version == 2, "kv %v", kv)
	demand(kv.CreateRevision == first.Header.Revision && kv.ModRevision == second.Header.Revision, "kv %v", kv)
	old := get(c, "pg/a", clientv3.WithRev(first.Header.Revision))
	demand(string(old.Kvs[0].Value) == "1", "old value %q", old.Kvs[0].Value)
	demand(old.Header.Revision >= second.Header.Revision, "header revision %d of an old read", old.Header.Revision)
	demand(len(get(c, "pg/none").Kvs) == 0, "a missing key was found")
	put(c, "pg/empty", "")
	demand(len(get(c, "pg/empty").Kvs) == 1, "an empty value is a value")
	binary := string([]byte{0, 255, 10, 0})
	put(c, "pg/"+binary, binary)
	demand(string(get(c, "pg/"+binary).Kvs[0].Value) == binary, "bytes were changed")
	ctx, cancel := background()
	defer cancel()
	_, err := c.Get(ctx, "pg/a", clientv3.WithRev(1<<40))
	demandError(err, rpctypes.ErrFutureRev)
}

func putOptions(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	put(c, "po/a", "1")
	demand(string(put(c, "po/a", "2", clientv3.WithPrevKV()).PrevKv.Value) == "1", "prev_kv is wrong")
	put(c, "po/a", "", clientv3.WithIgnoreValue())
	demand(string(get(c, "po/a").Kvs[0].Value) == "2", "ignore_value lost the value")
	_, err := c.Put(ctx, "po/none", "", clientv3.WithIgnoreValue())
	demandError(err, rpctypes.ErrKeyNotFound)
	_, err = c.Put(ctx, "po/a", "x", clientv3.WithLease(4242424242))
	demandError(err, rpctypes.ErrLeaseNotFound)
	_, err = c.Put(ctx, "", "x")
	demandError(err, rpctypes.ErrEmptyKey)
}

func rangeOptions(_ *Server, c *clientv3.Client) {
	for _, name := range []string{"c", "a", "e", "b", "d"} {
		put(c, "ro/"+name, "v"+name)
	}
	put(c, "ro/a", "z")
	prefix := clientv3.WithPrefix()
	demand(keysOf(get(c, "ro/", prefix).Kvs) == "ro/a ro/b ro/c ro/d ro/e", "order of keys")
	limited := get(c, "ro/", prefix, clientv3.WithLimit(2))
	demand(len(limited.Kvs) == 2 && limited.More && limited.Count == 5, "limit gave %d more %v count %d", len(limited.Kvs), limited.More, limited.Count)
	counted := get(c, "ro/", prefix, clientv3.WithCountOnly())
	demand(counted.Count == 5 && len(counted.Kvs) == 0 && !counted.More, "count only")
	names := get(c, "ro/", prefix, clientv3.WithKeysOnly())
	demand(len(names.Kvs) == 5 && len(names.Kvs[0].Value) == 0, "keys only")
	sorted := get(c, "ro/", prefix, clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	demand(keysOf(sorted.Kvs) == "ro/a ro/d ro/b ro/e ro/c", "sorted %s", keysOf(sorted.Kvs))
	demand(keysOf(get(c, "ro/b", clientv3.WithRange("ro/d")).Kvs) == "ro/b ro/c", "interval")
	demand(keysOf(get(c, "ro/d", clientv3.WithFromKey(), clientv3.WithLimit(2)).Kvs) == "ro/d ro/e", "from key")
	demand(len(get(c, "ro/d", clientv3.WithRange("ro/b")).Kvs) == 0, "an inverted range is empty")
	serial := get(c, "ro/a", clientv3.WithSerializable())
	demand(len(serial.Kvs) == 1, "serializable")
	newest := get(c, "ro/", clientv3.WithLastRev()...)
	demand(keysOf(newest.Kvs) == "ro/a", "last revision %s", keysOf(newest.Kvs))
	bounded := get(c, "ro/", prefix, clientv3.WithMinModRev(newest.Kvs[0].ModRevision))
	demand(keysOf(bounded.Kvs) == "ro/a" && bounded.Count == 5, "filtered %s count %d", keysOf(bounded.Kvs), bounded.Count)
}

func rangeStream(_ *Server, c *clientv3.Client) {
	for i := range 300 {
		put(c, fmt.Sprintf("rs/%04d", i), strings.Repeat("v", i*10))
	}
	ctx, cancel := background()
	defer cancel()
	stream, err := c.GetStream(ctx, "rs/", clientv3.WithPrefix())
	must(err)
	merged, err := clientv3.GetStreamToGetResponse(stream)
	must(err)
	unary := get(c, "rs/", clientv3.WithPrefix())
	demand(len(merged.Kvs) == 300 && merged.Count == unary.Count && !merged.More, "stream gave %d of %d", len(merged.Kvs), merged.Count)
	for i, kv := range merged.Kvs {
		demand(kv.String() == unary.Kvs[i].String(), "stream differs at %d", i)
	}
}

func deletes(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	for i := range 10 {
		put(c, fmt.Sprintf("de/%d", i), "v")
	}
	before := get(c, "x").Header.Revision
	response, err := c.Delete(ctx, "de/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	must(err)
	demand(response.Deleted == 10 && len(response.PrevKvs) == 10, "deleted %d", response.Deleted)
	demand(response.Header.Revision == before+1, "one delete is one revision")
	response, err = c.Delete(ctx, "de/", clientv3.WithPrefix())
	must(err)
	demand(response.Deleted == 0 && response.Header.Revision == before+1, "deleting nothing changes nothing")
	put(c, "de/1", "again")
	demand(get(c, "de/1").Kvs[0].Version == 1, "a version begins again after a delete")
}

func transactions(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	created, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("tx/a"), "=", 0)).
		Then(clientv3.OpPut("tx/a", "1")).Else(clientv3.OpGet("tx/a")).Commit()
	must(err)
	demand(created.Succeeded, "create of a missing key")
	again, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("tx/a"), "=", 0)).
		Then(clientv3.OpPut("tx/a", "2")).Else(clientv3.OpGet("tx/a")).Commit()
	must(err)
	demand(!again.Succeeded && again.Header.Revision == created.Header.Revision, "a failed txn makes no revision")
	demand(string(again.Responses[0].GetResponseRange().Kvs[0].Value) == "1", "the else branch reads")
	multi, err := c.Txn(ctx).Then(clientv3.OpPut("tx/b", "1"), clientv3.OpPut("tx/c", "1"), clientv3.OpGet("tx/b"),
		clientv3.OpDelete("tx/a")).Commit()
	must(err)
	revision := multi.Header.Revision
	demand(get(c, "tx/b").Kvs[0].ModRevision == revision && get(c, "tx/c").Kvs[0].ModRevision == revision, "one txn is one revision")
	demand(len(multi.Responses[2].GetResponseRange().Kvs) == 1, "a txn sees its own writes")
	nested, err := c.Txn(ctx).Then(clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.Value("tx/b"), "=", "1")},
		[]clientv3.Op{clientv3.OpPut("tx/d", "nested")}, nil)).Commit()
	must(err)
	demand(nested.Responses[0].GetResponseTxn().Succeeded, "a nested txn runs")
	demand(string(get(c, "tx/d").Kvs[0].Value) == "nested", "a nested put is there")
}

func transactionErrors(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	_, err := c.Txn(ctx).Then(clientv3.OpPut("te/a", "1"), clientv3.OpPut("te/a", "2")).Commit()
	demandError(err, rpctypes.ErrDuplicateKey)
	var ops []clientv3.Op
	for i := range 129 {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("te/%d", i), ""))
	}
	_, err = c.Txn(ctx).Then(ops...).Commit()
	demandError(err, rpctypes.ErrTooManyOps)
	demand(get(c, "te/", clientv3.WithPrefix()).Count == 0, "a refused txn left something")
}

func compaction(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	first := put(c, "co/a", "1").Header.Revision
	put(c, "co/a", "2")
	last := put(c, "co/a", "3").Header.Revision
	_, err := c.Compact(ctx, last, clientv3.WithCompactPhysical())
	must(err)
	_, err = c.Get(ctx, "co/a", clientv3.WithRev(first))
	demandError(err, rpctypes.ErrCompacted)
	demand(string(get(c, "co/a", clientv3.WithRev(last)).Kvs[0].Value) == "3", "the compacted revision itself is readable")
	_, err = c.Compact(ctx, last)
	demandError(err, rpctypes.ErrCompacted)
	_, err = c.Compact(ctx, last+1000)
	demandError(err, rpctypes.ErrFutureRev)
}

func leases(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	lease, err := c.Grant(ctx, 60)
	must(err)
	demand(lease.TTL == 60, "ttl %d", lease.TTL)
	put(c, "le/a", "1", clientv3.WithLease(lease.ID))
	put(c, "le/b", "1", clientv3.WithLease(lease.ID))
	info, err := c.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	must(err)
	demand(len(info.Keys) == 2 && info.GrantedTTL == 60 && info.TTL <= 60 && info.TTL > 50, "info %v", info)
	alive, err := c.KeepAliveOnce(ctx, lease.ID)
	must(err)
	demand(alive.TTL == 60, "kept alive with %d", alive.TTL)
	all, err := c.Leases(ctx)
	must(err)
	demand(len(all.Leases) >= 1, "no leases")
	revoked, err := c.Revoke(ctx, lease.ID)
	must(err)
	demand(get(c, "le/", clientv3.WithPrefix()).Count == 0, "keys outlive their lease")
	_ = revoked
	_, err = c.Revoke(ctx, lease.ID)
	demandError(err, rpctypes.ErrLeaseNotFound)
	_, err = c.KeepAliveOnce(ctx, lease.ID)
	demandError(err, rpctypes.ErrLeaseNotFound)
	gone, err := c.TimeToLive(ctx, lease.ID)
	must(err)
	demand(gone.TTL == -1, "ttl of an unknown lease is %d", gone.TTL)
	_, err = c.Grant(ctx, 9000000001)
	demandError(err, rpctypes.ErrLeaseTTLTooLarge)
}

func leaseExpiry(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	lease, err := c.Grant(ctx, 2)
	must(err)
	start := time.Now()
	put(c, "lx/a", "1", clientv3.WithLease(lease.ID))
	put(c, "lx/b", "1", clientv3.WithLease(lease.ID))
	watch := c.Watch(ctx, "lx/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	response := <-watch
	took := time.Since(start)
	demand(len(response.Events) == 2, "expiry of two keys came as %d events", len(response.Events))
	demand(response.Events[0].Type == mvccpb.DELETE && response.Events[0].PrevKv != nil, "event %v", response.Events[0])
	demand(took >= 1900*time.Millisecond && took < 6*time.Second, "expired after %v", took)
}

func leaseAcrossRestart(s *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	lease, err := c.Grant(ctx, 300)
	must(err)
	put(c, "lr/a", "1", clientv3.WithLease(lease.ID))
	s.Stop()
	s.Start()
	if memoryMode(s) {
		return
	}
	info, err := c.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	must(err)
	demand(info.TTL > 200 && len(info.Keys) == 1, "after a restart: %v", info)
}

func memoryMode(s *Server) bool {
	for _, flag := range s.Extra {
		if flag == "--fsync=memory" {
			return true
		}
	}
	return false
}

func largeResponses(_ *Server, c *clientv3.Client) {
	value := string(bytes.Repeat([]byte("x"), 1<<20))
	for i := range 9 {
		put(c, fmt.Sprintf("la/%d", i), value)
	}
	response := get(c, "la/", clientv3.WithPrefix())
	demand(len(response.Kvs) == 9 && len(response.Kvs[8].Value) == 1<<20, "9 MiB in one response")
}

func largeRequest(_ *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	_, err := c.Put(ctx, "lq/a", strings.Repeat("x", 1600000))
	demandError(err, rpctypes.ErrRequestTooLarge)
	demand(get(c, "lq/a").Count == 0, "a refused request left something")
}

func cancelledContexts(_ *Server, c *clientv3.Client) {
	for i := range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*20*time.Microsecond)
		_, _ = c.Put(ctx, fmt.Sprintf("ca/%d", i%10), "v")
		_, _ = c.Get(ctx, "ca/", clientv3.WithPrefix())
		cancel()
	}
	watched, cancelWatch := context.WithCancel(context.Background())
	watch := c.Watch(watched, "ca/", clientv3.WithPrefix())
	cancelWatch()
	for range watch {
	}
	put(c, "ca/last", "1")
	demand(string(get(c, "ca/last").Kvs[0].Value) == "1", "the connection is of no more use")
}

func concurrentIncrements(_ *Server, c *clientv3.Client) {
	const workers, each = 8, 25
	done := make(chan error, workers)
	for range workers {
		go func() {
			for range each {
				if err := increment(c, "ci/n"); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		must(<-done)
	}
	kv := get(c, "ci/n").Kvs[0]
	demand(string(kv.Value) == fmt.Sprint(workers*each) && kv.Version == workers*each, "counter is %s at version %d", kv.Value, kv.Version)
}

func increment(c *clientv3.Client, key string) error {
	ctx, cancel := background()
	defer cancel()
	for {
		got, err := c.Get(ctx, key)
		if err != nil {
			return err
		}
		var value, revision int64
		if len(got.Kvs) == 1 {
			_, _ = fmt.Sscan(string(got.Kvs[0].Value), &value)
			revision = got.Kvs[0].ModRevision
		}
		swapped, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, fmt.Sprint(value+1))).Commit()
		if err != nil || swapped.Succeeded {
			return err
		}
	}
}

func maintenance(s *Server, c *clientv3.Client) {
	ctx, cancel := background()
	defer cancel()
	status, err := c.Status(ctx, s.Endpoint())
	must(err)
	demand(strings.HasPrefix(status.Version, "3.7.") && status.Leader == status.Header.MemberId, "status %v", status)
	demand(status.DbSize > 0 && status.RaftAppliedIndex > 0, "status %v", status)
	members, err := c.MemberList(ctx)
	must(err)
	demand(len(members.Members) == 1 && members.Members[0].Name == "m", "members %v", members)
	hash, err := c.HashKV(ctx, s.Endpoint(), 0)
	must(err)
	demand(hash.Hash != 0 && hash.HashRevision == hash.Header.Revision, "hash %v", hash)
	alarms, err := c.AlarmList(ctx)
	must(err)
	demand(len(alarms.Alarms) == 0, "alarms %v", alarms)
	_, err = c.Defragment(ctx, s.Endpoint())
	must(err)
}

// rpcsNotServed are the calls of etcd that this version of the server does not know.
var rpcsNotServed = map[string][]string{
	"etcdserverpb.Cluster":     {"MemberAdd", "MemberRemove", "MemberUpdate", "MemberPromote"},
	"etcdserverpb.Maintenance": {"Snapshot", "MoveLeader", "Downgrade"},
	"etcdserverpb.Auth": {
		"AuthEnable", "AuthDisable", "AuthStatus", "Authenticate",
		"UserAdd", "UserGet", "UserList", "UserDelete", "UserChangePassword", "UserGrantRole", "UserRevokeRole",
		"RoleAdd", "RoleGet", "RoleList", "RoleDelete", "RoleGrantPermission", "RoleRevokePermission",
	},
	"v3lockpb.Lock":         {"Lock", "Unlock"},
	"v3electionpb.Election": {"Campaign", "Proclaim", "Leader", "Observe", "Resign"},
}

// notServed demands Unimplemented and nothing else, and that the store is none the worse for it.
func notServed(s *Server, c *clientv3.Client) {
	if strings.HasSuffix(s.Binary, "/etcd") {
		return
	}
	ctx, cancel := background()
	defer cancel()
	for service, methods := range rpcsNotServed {
		for _, method := range methods {
			path := "/" + service + "/" + method
			err := c.ActiveConnection().Invoke(ctx, path, &etcdserverpb.HashRequest{}, &etcdserverpb.HashResponse{})
			demand(status.Code(err) == codes.Unimplemented, "%s answers %v", path, err)
		}
	}
	_, err := c.Put(ctx, "after", "them")
	must(err)
}
