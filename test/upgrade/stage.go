package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
)

// stage is a fleet of simulated nodes whose pods' history is written.
type stage struct {
	*fleet
	ctx     context.Context
	p       programs
	client  kubernetes.Interface
	own     *everynode.Client
	history *history
	byUs    map[types.UID]bool // pods that the scenario took
}

// stageNodes is how many nodes there are, and stageLimit how many may be without a daemon by our making.
const (
	stageNodes = 8
	stageLimit = 2
)

// onStage plays a scenario that begins with one of the programs and goes to another, which must be there too.
func onStage(p programs, first, other string, servers int, play func(*stage) error) error {
	if first == "" || other == "" {
		return errors.New("this scenario needs another program: see -old and -older")
	}
	return with(p, first, size{"simulated", servers, stageNodes}, func(f *fleet) error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(f.dir, "kubeconfig"))
		if err != nil {
			return err
		}
		config.QPS, config.Timeout = -1, 0
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		own, err := everynode.NewForConfig(config)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		err = play(&stage{f, ctx, p, client, own, follow(ctx, client), map[types.UID]bool{}})
		if err != nil && p.logs != "" {
			err = errors.Join(err, f.keepLogs(p.logs))
		}
		return err
	})
}

// replace has another program run in all servers.
func (s *stage) replace(what, program string) error {
	start := time.Now()
	if err := s.install(program); err != nil {
		return err
	}
	for number := range s.servers {
		if err := s.restartServer(number); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if err := s.answers(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	fmt.Printf("  %s (%.1f s)\n", what, time.Since(start).Seconds())
	return nil
}

func (s *stage) answers() error {
	return wait("the API answers", func() error {
		_, err := s.client.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
		return err
	})
}

func (s *stage) rollout(daemon string) (*v1alpha1.DaemonSetRollout, error) {
	return s.own.DaemonSetRollouts("default").Get(s.ctx, daemon, metav1.GetOptions{})
}

// phase waits until the rollout of a daemon is in a phase, and its target has content or has none.
func (s *stage) phase(daemon string, want v1alpha1.Phase, content bool) error {
	return wait(fmt.Sprintf("the rollout of %s is %s", daemon, want), func() error {
		r, err := s.rollout(daemon)
		if err != nil {
			return err
		}
		if has := strings.Contains(r.Status.TargetRevision, "."); r.Status.Phase != want || has != content {
			return fmt.Errorf("it is %s, to revision %s: %s", r.Status.Phase, r.Status.TargetRevision, r.Status.Message)
		}
		return nil
	})
}

func (s *stage) pods(daemon string) ([]corev1.Pod, error) {
	list, err := s.client.CoreV1().Pods("default").List(s.ctx, metav1.ListOptions{LabelSelector: "app=" + daemon})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(nodeOf(&a), nodeOf(&b)) })
	return list.Items, nil
}

// ready waits until each node has one available pod of a daemon.
func (s *stage) ready(daemon string) error {
	return wait("every node has its "+daemon, func() error {
		ds, err := s.client.AppsV1().DaemonSets("default").Get(s.ctx, daemon, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ds.Status.NumberAvailable != stageNodes || ds.Status.ObservedGeneration != ds.Generation {
			return fmt.Errorf("%d of %d have", ds.Status.NumberAvailable, stageNodes)
		}
		pods, err := s.pods(daemon)
		if err == nil && len(pods) != stageNodes {
			err = fmt.Errorf("there are %d pods", len(pods))
		}
		return err
	})
}

// lose deletes the pod of a daemon on one of the nodes, as a node that is made again does.
func (s *stage) lose(daemon string, number int) error {
	pods, err := s.pods(daemon)
	if err != nil || len(pods) <= number {
		return fmt.Errorf("choose one of %d pods of %s: %w", len(pods), daemon, err)
	}
	pod := pods[number]
	s.byUs[pod.UID] = true
	if err := s.client.CoreV1().Pods("default").Delete(s.ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return wait("the node has another "+daemon, func() error {
		pods, err := s.pods(daemon)
		switch {
		case err != nil:
			return err
		case len(pods) != stageNodes:
			return fmt.Errorf("there are %d pods", len(pods))
		case pods[number].UID == pod.UID || pods[number].Status.Phase != corev1.PodRunning:
			return errors.New("it does not run")
		}
		return nil
	})
}

// edit writes one key of a ConfigMap.
func (s *stage) edit(name, value string) error {
	patch := fmt.Sprintf(`{"data":{"agent.conf":%q}}`, value)
	maps := s.client.CoreV1().ConfigMaps("default")
	_, err := maps.Patch(s.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// spoil has containers that read a value end on all nodes; "" takes it back, as an older program knows no such fault.
func (s *stage) spoil(value string) error {
	patch := `{"metadata":{"annotations":{"simulated.everynode.io/fault":null}}}`
	if value != "" {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{"simulated.everynode.io/fault":%q}}}`,
			fmt.Sprintf("{badContent: {key: agent.conf, value: %s}}", value))
	}
	nodes := s.client.CoreV1().Nodes()
	list, err := nodes.List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range list.Items {
		_, err := nodes.Patch(s.ctx, n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// allowContent gives the controller the rights that content takes.
func (s *stage) allowContent() error {
	for _, role := range []string{"content", "content-secrets"} {
		_, err := s.kubectl(s.new, "create", "rolebinding", role, "--clusterrole=everynode:"+role,
			"--serviceaccount=kube-system:daemon-set-controller")
		if err != nil {
			return err
		}
	}
	return nil
}

// agent is a daemon that reads a ConfigMap and a Secret, and its policy. Both objects, and the policy, have its name if
// they have no other; nobody is asked for approval if that is not said.
type agent struct {
	name, conf, policy string
	then, approval     string
	apply              string // how a change of content reaches pods; "" for a restart
	fault              string // what ails its pods, wherever they are
}

func (a agent) confName() string { return cmp.Or(a.conf, a.name) }

func (a agent) manifest() string {
	fault := ""
	if a.fault != "" {
		fault = fmt.Sprintf("simulated.everynode.io/fault: %q", a.fault)
	}
	return strings.NewReplacer(
		"FAULT", fault, "NAME", a.name, "CONF", a.confName(), "POLICY", cmp.Or(a.policy, a.name),
		"APPROVAL", cmp.Or(a.approval, "Automatic"), "THEN", a.then, "APPLY", cmp.Or(a.apply, "Restart"),
	).Replace(agentManifest)
}

// judge looks at what became of a daemon between two places, and says what must not have been.
func (s *stage) judge(daemon, bad string, from, to int, mayReplace bool) error {
	moments := s.history.between(from, to)
	var wrong []string
	if !mayReplace {
		for _, r := range replaced(moments, daemon, s.byUs) {
			wrong = append(wrong, "replaced for no reason: "+r)
		}
	}
	for _, r := range reading(moments, daemon, bad) {
		wrong = append(wrong, "given what was taken back: "+r)
	}
	for _, r := range overLimit(s.history.between(0, to), daemon, stageLimit, s.byUs) {
		wrong = append(wrong, "over the limit: "+r)
	}
	if len(wrong) > 0 {
		lines := func(of []string) string { return strings.Join(of, "\n  ") }
		return fmt.Errorf("pods of %s:\n  %s\nwhat happened:\n  %s\nwhat was told of it:\n  %s",
			daemon, lines(wrong), lines(story(moments, daemon)), lines(s.told(daemon)))
	}
	return nil
}

// told is what events say of a daemon.
func (s *stage) told(daemon string) (out []string) {
	list, err := s.client.CoreV1().Events("default").List(s.ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=DaemonSet,involvedObject.name=" + daemon,
	})
	if err != nil {
		return []string{err.Error()}
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, e := range list.Items {
		out = append(out, fmt.Sprintf("%s %s: %s", e.LastTimestamp.Format("15:04:05"), e.Reason, e.Message))
	}
	return out
}
