package server_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/server"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

func TestDataSurvivesRestart(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	ctx := context.Background()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	made, err := env.Client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env.Restart()
	got, err := env.Client.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != made.UID || got.ResourceVersion != made.ResourceVersion || got.Data["a"] != "b" {
		t.Errorf("after a restart: %v %v %v, want what was stored: %v %v %v", got.UID, got.ResourceVersion, got.Data, made.UID, made.ResourceVersion, made.Data)
	}
}

func TestReadyMeansBootstrapped(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	ctx := context.Background()
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := env.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Errorf("namespace %s: %v", name, err)
		}
	}
	svc, err := env.Client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if svc.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("service kubernetes has the address %s, want the first of the range, 10.96.0.1", svc.Spec.ClusterIP)
	}
	if _, err := env.Client.RbacV1().ClusterRoles().Get(ctx, "cluster-admin", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	env.Eventually("every namespace gets its service account and the CA", func(ctx context.Context) error {
		for _, ns := range []string{"default", "kube-system"} {
			if _, err := env.Client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
			cm, err := env.Client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !strings.Contains(cm.Data["ca.crt"], "BEGIN CERTIFICATE") {
				return fmt.Errorf("ca.crt in %s holds %q", ns, cm.Data["ca.crt"])
			}
		}
		return nil
	})
}

func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	o := config.Defaults()
	o.DataDir, o.Listen = env.DataDir(), []string{"127.0.0.1:0"}
	_, err := server.New(o)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a second server on the same data: %v, want an error that names this process and says what to do", err)
	}
}

func TestBadOptionsAreOneClearLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*config.Options)
		want   []string
	}{
		"port in use":         {func(o *config.Options) { o.Listen = []string{taken.Addr().String()} }, []string{taken.Addr().String(), "in use", "--listen"}},
		"foreign address":     {func(o *config.Options) { o.Listen = []string{"203.0.113.1:6443"} }, []string{"203.0.113.1:6443", "--listen"}},
		"data dir is a file":  {func(o *config.Options) { o.DataDir = file }, []string{file, "--data-dir"}},
		"data dir below file": {func(o *config.Options) { o.DataDir = filepath.Join(file, "x") }, []string{file, "--data-dir"}},
		"bad service CIDR":    {func(o *config.Options) { o.ServiceCIDR = "10.96.0.0" }, []string{`"10.96.0.0"`, "10.96.0.0/16"}},
		"bad cluster CIDR":    {func(o *config.Options) { o.ClusterCIDR = "pods" }, []string{`"pods"`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := config.Defaults()
			o.DataDir, o.Listen = filepath.Join(t.TempDir(), "d"), []string{"127.0.0.1:0"}
			c.change(&o)
			_, err := server.New(o)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not mention %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error has several lines: %q", err)
			}
		})
	}
}
