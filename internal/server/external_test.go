package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/encryption"
	"github.com/everynode/everynode/internal/testenv"
)

func contextOf(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(context.Background(), d)
}

// demoDaemons is a DaemonSet on every node.
func demoDaemons() *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}}},
	}}
}

// The whole control plane works on three etcd servers with TLS: a rollout ends while
// the leader is killed in the middle, watches go on, events end with their leases, and
// Secrets cannot be read in the members' files.
func TestExternalEtcd(t *testing.T) {
	t.Parallel()
	c := startMembers(t, 3)
	env := testenv.Start(t, c.use, testenv.SimulatedNodes(20))
	ctx := t.Context()
	makeSecret(t, env.Client, "s", "a-password-that-nobody-may-see")
	if _, err := env.Client.AppsV1().DaemonSets("default").Create(ctx, demoDaemons(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the first version is everywhere", updated(env, 1, 20))
	watching, err := env.Client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	patch(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:v2"}]}}}}`)
	env.Eventually("the rollout has begun", func(ctx context.Context) error {
		ds, err := env.Client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && ds.Status.UpdatedNumberScheduled < 3 {
			err = fmt.Errorf("%d nodes are up to date", ds.Status.UpdatedNumberScheduled)
		}
		return err
	})
	dead := c.leader()
	dead.kill()
	env.Eventually("the rollout ends without the member", updated(env, 2, 20))

	// A watch of before tells what is written now.
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after-the-kill"}}
	if _, err := env.Client.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, watching, "after-the-kill")

	// A compaction takes nothing from those who watch.
	raw := c.client()
	now, err := raw.Get(ctx, "any")
	if err == nil {
		_, err = raw.Compact(ctx, now.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after-the-compaction"}}
	if _, err := env.Client.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, watching, "after-the-compaction")

	// What ends by itself has a lease in etcd.
	answer, err := raw.Get(ctx, "/registry/events/default/", clientv3.WithPrefix(), clientv3.WithLimit(1))
	if err != nil || len(answer.Kvs) == 0 || answer.Kvs[0].Lease == 0 {
		t.Errorf("events are stored as %v, %v, want one with a lease", answer, err)
	}
	for _, m := range c.all {
		if onDisk(t, m.Dir, "a-password-that-nobody-may-see") {
			t.Errorf("the Secret can be read in the files of member %s", m.Name)
		}
	}
	if !onDisk(t, c.all[0].Dir, "k8s:enc:secretbox:v1:key-1:") {
		t.Error("the Secret's mark cannot be found: the test looks in the wrong place")
	}
	turnIsTaken(t, env, raw)
	serversAgree(t, c, env)
	// The member comes back, and the server starts again on all three.
	c.start(dead)
	env.Restart()
	checkSecret(t, env.Client, "s", "a-password-that-nobody-may-see")
}

// turnIsTaken begins a turn as another server would. The loops of this one find out when they
// write, stop, and work again in a turn of their own.
func turnIsTaken(t *testing.T, env *testenv.Env, raw *clientv3.Client) {
	t.Helper()
	const turn, other = "/registry/everynode/turn", "another server"
	if before, err := raw.Get(t.Context(), turn); err != nil || len(before.Kvs) != 1 {
		t.Fatalf("the turn of the loops is %v, %v", before, err)
	}
	if _, err := raw.Put(t.Context(), turn, other); err != nil {
		t.Fatal(err)
	}
	patch(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:v1"}]}}}}`)
	env.Eventually("the loops have a turn of their own again", func(ctx context.Context) error {
		now, err := raw.Get(ctx, turn)
		if err == nil && (len(now.Kvs) != 1 || string(now.Kvs[0].Value) == other) {
			err = fmt.Errorf("it is %v", now.Kvs)
		}
		return err
	})
	env.Eventually("the rollout ends in that turn", updated(env, 3, 20))
}

// serversAgree starts servers beside the one that runs. With other keys, or other networks,
// none does; with the same it takes part.
func serversAgree(t *testing.T, c *members, env *testenv.Env) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	refused := func(what, want string, change ...func(*config.Options)) {
		t.Helper()
		if err := startup(t, dir, append(change, c.use, testenv.SimulatedNodes(20))...); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", what, err, want)
		}
	}
	refused("keys of its own", "copy pki/ca*")
	keys, err := pki.ExportCluster(filepath.Join(env.DataDir(), "pki"))
	if err == nil {
		err = os.RemoveAll(filepath.Join(dir, "pki"))
	}
	if err == nil {
		err = pki.ImportCluster(filepath.Join(dir, "pki"), keys)
	}
	if err != nil {
		t.Fatal(err)
	}
	stored, err := encryption.Read(encryption.File(env.DataDir()))
	if err == nil {
		err = os.WriteFile(encryption.File(dir), stored, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused("another network of Services", "--service-cidr 10.96.0.0/16", func(o *config.Options) { o.ServiceCIDR = "10.97.0.0/16" })
	refused("other networks of nodes", "--node-cidr-mask-size 24", func(o *config.Options) { o.NodeMaskSize = 25 })
	refused("another network of pods", "--cluster-cidr 10.128.0.0/9", func(o *config.Options) { o.ClusterCIDR = "10.64.0.0/12" })
	second := testenv.Start(t, c.use, testenv.SimulatedNodes(20), func(o *config.Options) { o.DataDir, o.Name = dir, "second" })
	checkSecret(t, second.Client, "s", "a-password-that-nobody-may-see")
	second.Stop()

	// Keys that were replaced elsewhere while it was away.
	if err := pki.Rotate(filepath.Join(env.DataDir(), "pki"), pki.NodeAuthority, time.Now()); err != nil {
		t.Fatal(err)
	}
	env.Restart()
	refused("keys of before", "copy pki/ca*")
}

func waitFor(t *testing.T, w watch.Interface, name string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended before it told of %s", name)
			}
			if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name == name {
				return
			}
		case <-deadline:
			t.Fatalf("the watch does not tell of %s", name)
		}
	}
}

// Without a majority nothing is written and the server stays; when the members are
// back, everything goes on by itself, and a write that was acknowledged is there.
func TestMajorityOfEtcdIsLostAndComesBack(t *testing.T) {
	t.Parallel()
	c := startMembers(t, 3)
	env := testenv.Start(t, c.use, testenv.SimulatedNodes(3), func(o *config.Options) {
		o.API.Run.RequestTimeout = 5 * time.Second
		o.Metrics = prometheus.NewRegistry() // which takes nothing twice
	})
	makeSecret(t, env.Client, "before", "x")
	if _, err := env.Client.AppsV1().DaemonSets("default").Create(t.Context(), demoDaemons(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the first version is everywhere", updated(env, 1, 3))
	c.all[0].kill()
	c.all[1].kill()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "during"}}
	if _, err := env.Client.CoreV1().Secrets("default").Create(t.Context(), s, metav1.CreateOptions{}); err == nil {
		t.Error("a write is acknowledged that nobody keeps")
	}
	// Longer than the lease of who leads the control loops.
	time.Sleep(20 * time.Second)
	c.start(c.all[0])
	c.start(c.all[1])
	c.healthy()
	env.Eventually("the server writes again", func(ctx context.Context) error {
		_, err := env.Client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{})
		return err
	})
	checkSecret(t, env.Client, "before", "x")
	patch(t, env, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"everynode.io/demo:v2"}]}}}}`)
	env.Eventually("the control loops work again", updated(env, 2, 3))
}

// An etcd that cannot be used is refused in one line that says what is wrong.
func TestEtcdThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	c := startMembers(t, 1)
	stranger := newAuthority(t)
	dir := t.TempDir()
	otherCA := filepath.Join(dir, "ca.crt")
	writePEM(t, otherCA, "CERTIFICATE", stranger.cert.Raw)
	otherCert, otherKey := stranger.issue(t, dir, "stranger")
	nobody := freeURL(t)
	for name, change := range map[string]struct {
		change func(*config.Options)
		want   string
	}{
		"another CA": {func(o *config.Options) { o.API.Etcd.StorageConfig.Transport.TrustedCAFile = otherCA }, "its certificate is not of the CA in --etcd-cafile"},
		"no certificate": {func(o *config.Options) {
			o.API.Etcd.StorageConfig.Transport.CertFile, o.API.Etcd.StorageConfig.Transport.KeyFile = "", ""
		}, "does not take the certificate of --etcd-certfile, or wants one"},
		"a stranger's certificate": {func(o *config.Options) {
			o.API.Etcd.StorageConfig.Transport.CertFile, o.API.Etcd.StorageConfig.Transport.KeyFile = otherCert, otherKey
		}, "does not take the certificate of --etcd-certfile, or wants one"},
		"a certificate without its key": {func(o *config.Options) { o.API.Etcd.StorageConfig.Transport.KeyFile = "" }, "belong together"},
		"a key that is not there":       {func(o *config.Options) { o.API.Etcd.StorageConfig.Transport.KeyFile = filepath.Join(dir, "none") }, "--etcd-keyfile"},
		"nobody there":                  {func(o *config.Options) { o.API.Etcd.StorageConfig.Transport.ServerList = []string{nobody} }, "connection refused"},
		"without TLS": {func(o *config.Options) {
			o.API.Etcd.StorageConfig.Transport.ServerList = []string{strings.Replace(c.all[0].Client, "https", "http", 1)}
		}, "its URL is not https"},
		"no URL":         {func(o *config.Options) { o.API.Etcd.StorageConfig.Transport.ServerList = []string{"etcd-1"} }, "it is no URL such as"},
		"files, no etcd": {func(o *config.Options) { o.API.Etcd.StorageConfig.Transport.ServerList = nil }, "for an etcd that --etcd-servers names"},
	} {
		err := startup(t, filepath.Join(t.TempDir(), "data"), c.use, change.change)
		if err == nil || !strings.Contains(err.Error(), change.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, change.want)
		}
	}
	// One of several that is dead is no reason.
	env := testenv.Start(t, c.use, func(o *config.Options) {
		o.API.Etcd.StorageConfig.Transport.ServerList = []string{nobody, c.all[0].Client}
	})
	makeSecret(t, env.Client, "s", "x")
	// Another server with a folder of its own is told to take the key.
	if err := startup(t, filepath.Join(t.TempDir(), "data"), c.use); err == nil || !strings.Contains(err.Error(), "from another server of the cluster") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second server without the keys: %v", err)
	}
}
