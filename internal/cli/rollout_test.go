package cli

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// TestMain lets scripts run this program, under both of its names.
func TestMain(m *testing.M) {
	run := func() { os.Exit(ExecuteAs(context.Background(), os.Args[0], os.Args[1:], os.Stdout, os.Stderr)) }
	testscript.Main(m, map[string]func(){"everynode": run, pluginName: run})
}

// TestRollout runs what people type, against an API server; the scripts play the
// controller. Each script has a namespace of its own.
func TestRollout(t *testing.T) {
	env := testenv.Start(t, func(o *config.Options) { o.NoDaemonSetController = true })
	own, err := client.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	play := player{env.Client, own}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "rollout"),
		Setup: func(e *testscript.Env) error {
			namespace := filepath.Base(e.WorkDir)[len("script-"):]
			kubeconfig := filepath.Join(e.WorkDir, "kubeconfig")
			e.Setenv("NS", namespace)
			e.Setenv("DATADIR", env.DataDir())
			e.Setenv("KUBECONFIG", kubeconfig)
			if err := inNamespace(filepath.Join(env.DataDir(), "kubeconfig"), kubeconfig, namespace); err != nil {
				return err
			}
			_, err := env.Client.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemonset": play.daemonSet, "policy": play.policy, "rollout": play.rollout, "status": play.status, "spec": play.spec,
		},
	})
}

// inNamespace copies a kubeconfig with another default namespace.
func inNamespace(from, to, namespace string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, c := range config.Contexts {
		c.Namespace = namespace
	}
	return clientcmd.WriteToFile(*config, to)
}

// player is what scripts do beside typing commands.
type player struct {
	core kubernetes.Interface
	own  *client.Client
}

// daemonSet makes a DaemonSet: daemonset NAME
func (p player) daemonSet(ts *testscript.TestScript, _ bool, args []string) {
	labels := map[string]string{"app": args[0]}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: args[0], Labels: labels}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}
	_, err := p.core.AppsV1().DaemonSets(ts.Getenv("NS")).Create(context.Background(), d, metav1.CreateOptions{})
	ts.Check(err)
}

// policy makes a policy: policy NAME APP
func (p player) policy(ts *testscript.TestScript, _ bool, args []string) {
	_, err := p.own.RolloutPolicies(ts.Getenv("NS")).Create(context.Background(), &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: args[0]},
		Spec:       v1alpha1.RolloutPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": args[1]}}},
	}, metav1.CreateOptions{})
	ts.Check(err)
}

// rollout makes a rollout: rollout NAME
func (p player) rollout(ts *testscript.TestScript, _ bool, args []string) {
	_, err := p.own.DaemonSetRollouts(ts.Getenv("NS")).Create(context.Background(), &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}, metav1.CreateOptions{})
	ts.Check(err)
}

// status writes a rollout's status for its present spec: status NAME FILE [AFTER].
// With AFTER it does that after some time, while the script goes on.
func (p player) status(ts *testscript.TestScript, _ bool, args []string) {
	namespace, text := ts.Getenv("NS"), ts.ReadFile(args[1])
	write := func() error {
		r, err := p.own.DaemonSetRollouts(namespace).Get(context.Background(), args[0], metav1.GetOptions{})
		if err != nil {
			return err
		}
		r.Status = v1alpha1.DaemonSetRolloutStatus{}
		if err := yaml.UnmarshalStrict([]byte(text), &r.Status); err != nil {
			return err
		}
		r.Status.ObservedGeneration = r.Generation
		_, err = p.own.DaemonSetRollouts(namespace).UpdateStatus(context.Background(), r, metav1.UpdateOptions{})
		return err
	}
	if len(args) == 2 {
		ts.Check(write())
		return
	}
	after, err := time.ParseDuration(args[2])
	ts.Check(err)
	done := make(chan error, 1)
	timer := time.AfterFunc(after, func() { done <- write() })
	ts.Defer(func() {
		if !timer.Stop() {
			ts.Check(<-done)
		}
	})
}

// spec compares what was written into a rollout's spec: spec NAME FILE
func (p player) spec(ts *testscript.TestScript, _ bool, args []string) {
	r, err := p.own.DaemonSetRollouts(ts.Getenv("NS")).Get(context.Background(), args[0], metav1.GetOptions{})
	ts.Check(err)
	got, err := yaml.Marshal(r.Spec)
	ts.Check(err)
	if want := ts.ReadFile(args[1]); string(got) != want {
		ts.Fatalf("the spec of %s is\n%swant\n%s", args[0], got, want)
	}
}
