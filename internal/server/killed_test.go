package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/server/membership"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

// oneOfVariable has this program be one of several servers.
const oneOfVariable = "EVERYNODE_TEST_ONE_OF_SEVERAL"

// oneOf is a server of several in a process of its own, which can be killed.
type oneOf struct {
	Name, Dir, Listen, Peer, Join, Token string
	process                              *exec.Cmd
}

func runOneOf(text string) error {
	var one oneOf
	if err := json.Unmarshal([]byte(text), &one); err != nil {
		return err
	}
	o := config.Defaults()
	o.Name, o.DataDir, o.Listen, o.PeerAddress, o.NoFsync = one.Name, one.Dir, []string{one.Listen}, one.Peer, true
	if one.Join != "" {
		if err := membership.Join(context.Background(), o, one.Join, one.Token); err != nil {
			return err
		}
	}
	for {
		s, err := server.New(o)
		if err != nil {
			return err
		}
		if err := s.Run(context.Background()); !errors.Is(err, membership.ErrBeginAnew) {
			return err
		}
	}
}

func (o *oneOf) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	o.process = exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // It is this program.
	o.process.Env = append(os.Environ(), oneOfVariable+"="+string(text))
	if err := o.process.Start(); err != nil {
		t.Fatal(err)
	}
	process := o.process
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	o.eventually(t, "it is ready", func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (o *oneOf) kill() {
	_ = o.process.Process.Kill()
	_ = o.process.Wait()
}

func (o *oneOf) eventually(t *testing.T, what string, check func(context.Context, kubernetes.Interface) error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(o.Dir, "kubeconfig"))
		if err == nil {
			config.QPS, config.Timeout = -1, 10*time.Second
			var client kubernetes.Interface
			if client, err = kubernetes.NewForConfig(config); err == nil {
				err = check(t.Context(), client)
			}
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s: %v", o.Name, what, err)
		}
	}
}

// write makes a ConfigMap; one whose answer was lost may be there already.
func (o *oneOf) write(t *testing.T, name string) {
	t.Helper()
	o.eventually(t, "write "+name, func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), "already exists") {
			return nil
		}
		return err
	})
}

func (o *oneOf) holder(t *testing.T, not string) (name string) {
	t.Helper()
	o.eventually(t, "the control loops of a server work", func(ctx context.Context, c kubernetes.Interface) error {
		lease, err := c.CoordinationV1().Leases("kube-system").Get(ctx, "everynode-controllers", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity != nil {
			name, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		}
		if name == "" || name == not {
			return fmt.Errorf("the lease is of %q", name)
		}
		return nil
	})
	return name
}

// Each of three servers is killed in turn. The others go on, and nothing that was
// acknowledged is lost, also not on the one that comes back.
func TestServersAreKilled(t *testing.T) {
	t.Parallel()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	var all []*oneOf
	for n := 1; n <= 3; n++ {
		peer, err := freeport.Take()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &oneOf{
			Name: fmt.Sprint("server-", n), Dir: filepath.Join(t.TempDir(), "data"),
			Listen: fmt.Sprintf("127.0.0.%d:%d", n, port), Peer: fmt.Sprintf("127.0.0.1:%d", peer),
		})
	}
	all[0].start(t)
	for _, o := range all[1:] {
		o.Join, o.Token = "https://"+all[0].Listen, serverToken(t, all[0])
		o.start(t)
	}
	written := 0
	write := func(by *oneOf) {
		by.write(t, fmt.Sprint("written-", written))
		written++
	}
	for range all {
		works := all[0].holder(t, "")
		var dead, alive *oneOf
		for _, o := range all {
			write(o)
			if o.Name == works {
				dead = o
			} else {
				alive = o
			}
		}
		dead.kill()
		since := time.Now()
		write(alive)
		t.Logf("%s was killed; the next write was acknowledged after %v", dead.Name, time.Since(since))
		alive.holder(t, dead.Name)
		t.Logf("the control loops of another worked after %v", time.Since(since))
		if took := time.Since(since); took > 30*time.Second {
			t.Errorf("the control loops worked again only after %v", took)
		}
		write(alive)
		dead.start(t)
		for _, o := range all {
			o.eventually(t, "all is there", func(ctx context.Context, c kubernetes.Interface) error {
				list, err := c.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				has := 0
				for _, m := range list.Items {
					if strings.HasPrefix(m.Name, "written-") {
						has++
					}
				}
				if has != written {
					t.Fatalf("%s has %d of %d objects whose writing was acknowledged", o.Name, has, written)
				}
				return nil
			})
		}
	}
}

func serverToken(t *testing.T, at *oneOf) string {
	t.Helper()
	secret, token, err := authn.NewServerToken(time.Now(), time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	at.eventually(t, "make a token", func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{})
		return err
	})
	token.CAHash, err = pki.ReadCAHash(filepath.Join(at.Dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return token.Text()
}
