package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/test/foreign/judge"
)

// past is all that happened in a round. It is read from the database itself: there no gap is while the API server
// is down, and all kinds are in one order.
type past struct {
	mu  sync.Mutex
	all []judge.Entry
	err error
}

// add notes what the test does.
func (h *past) add(e judge.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = time.Now()
	h.all = append(h.all, e)
}

// soFar is all that is known now.
func (h *past) soFar(t *testing.T) []judge.Entry {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		t.Fatalf("the history has a gap: %v", h.err)
	}
	return slices.Clone(h.all)
}

// records follows the database from now on until the test ends.
func records(t *testing.T, c *cluster) *past {
	t.Helper()
	at := ""
	for _, arg := range c.plane[0].cmd.Args {
		if url, is := strings.CutPrefix(arg, "--advertise-client-urls="); is {
			at = url
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	h := &past{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = client.Close()
	})
	all, err := client.Get(ctx, "/registry/minions/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		h.read(string(kv.Key), kv.Value, false)
	}
	watch := client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithPrevKV(),
		clientv3.WithRev(all.Header.Revision+1))
	go func() {
		defer close(ended)
		for answer := range watch {
			for _, e := range answer.Events {
				value := e.Kv.Value
				gone := e.Type == clientv3.EventTypeDelete
				if gone && e.PrevKv != nil {
					value = e.PrevKv.Value
				}
				h.read(string(e.Kv.Key), value, gone)
			}
			if err := answer.Err(); err != nil && ctx.Err() == nil {
				h.mu.Lock()
				h.err = err
				h.mu.Unlock()
			}
		}
	}()
	return h
}

// read notes one write to the database.
func (h *past) read(key string, value []byte, gone bool) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, "/registry/"), "/")
	e := judge.Entry{Gone: gone}
	switch kind {
	case "everynode.io":
		if strings.Contains(key, "/rolloutpolicies/") {
			e.Policy = path.Base(key)
			break
		}
		if !strings.Contains(key, "/daemonsetrollouts/") {
			return
		}
		e.Rollout = roundRollout(value)
	case "pods", "minions", "configmaps", "secrets", "events", "daemonsets":
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
		if err != nil {
			h.mu.Lock()
			h.err = fmt.Errorf("read %s: %w", key, err)
			h.mu.Unlock()
			return
		}
		entryOf(obj, &e)
	}
	if e.Pod != nil || e.Bound != nil || e.Node != nil || e.Rollout != nil || e.Stored != nil || e.Copy+e.Policy != "" || e.Told != "" && !gone {
		h.add(e)
	}
}

func entryOf(obj runtime.Object, e *judge.Entry) {
	switch o := obj.(type) {
	case *corev1.Pod:
		e.Pod = roundPod(o)
		// One that fetches images for a daemon tolerates what that does, and is no ordinary pod.
		if e.Pod == nil && o.Spec.NodeName != "" && !e.Gone && !fetchpod.Is(o) {
			e.Bound = &judge.Bound{Name: o.Name, Node: o.Spec.NodeName}
		}
	case *corev1.Node:
		e.Node = &judge.Node{Name: o.Name, Step: "zones/" + o.Labels["topology.kubernetes.io/zone"], Ready: o.DeletionTimestamp == nil}
		e.Node.Rack, e.Node.Labels = o.Labels["rack"], []string{"room=" + o.Labels["room"]}
		e.Node.Closed = nodestartup.TaintOf(o.Spec.Taints) != nil
		if o.Labels["pool"] == "canary" {
			e.Node.Step = "canary"
		}
		for _, c := range o.Status.Conditions {
			e.Node.Ready = e.Node.Ready && (c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue)
		}
	case *corev1.ConfigMap:
		if o.Labels["everynode.io/content"] == "copy" {
			e.Copy = o.Name
		}
	case *corev1.Secret:
		if o.Labels["everynode.io/content"] == "copy" {
			e.Copy = "secret " + o.Name
		}
	case *appsv1.DaemonSet:
		e.Stored = &judge.Stored{Set: o.Name, Taken: o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType}
		for k, v := range o.Spec.Template.Spec.NodeSelector {
			e.Stored.Placement = k + "=" + v
		}
	case *corev1.Event:
		if o.Reason == "WrongRevision" {
			e.Told = o.InvolvedObject.Name
		}
	}
}

// roundPod is a pod of a DaemonSet as the judge knows it; nil for others.
func roundPod(p *corev1.Pod) *judge.Pod {
	set := p.Labels["app"]
	if len(p.OwnerReferences) == 0 || set == "" {
		return nil
	}
	out := &judge.Pod{UID: string(p.UID), Set: set, Node: p.Spec.NodeName, Going: p.DeletionTimestamp != nil,
		Revision: p.Labels[appsv1.ControllerRevisionHashLabelKey], Image: p.Spec.Containers[0].Image}
	if whole := p.Labels["everynode.io/revision"]; whole != "" {
		out.Revision, out.Whole = content.WithVariants(whole, ""), whole
	}
	if a := p.Spec.Affinity; out.Node == "" && a != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				out.Node = f.Values[0]
			}
		}
	}
	for _, c := range p.Status.Conditions {
		out.Available = out.Available || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	for _, from := range p.Spec.Containers[0].EnvFrom {
		if from.SecretRef != nil {
			out.Reads = append(out.Reads, "secret "+from.SecretRef.Name)
			continue
		}
		out.Reads = append(out.Reads, from.ConfigMapRef.Name)
	}
	return out
}

// roundRollout is a rollout as the judge knows it. A pod that is the same by other variants stays as it was made, so
// what a revision fails by is the whole of it, and all else is its template and its content. Which variant each pod has
// is asked in the end.
func roundRollout(value []byte) *judge.Rollout {
	var o v1alpha1.DaemonSetRollout
	if err := json.Unmarshal(value, &o); err != nil || o.Status.TargetRevision == "" {
		return nil
	}
	s := &o.Status
	out := &judge.Rollout{Set: o.Name, Stable: content.WithVariants(s.StableRevision, ""),
		Target: content.WithVariants(s.TargetRevision, ""), Step: s.Step, Phase: string(s.Phase),
		Goal: s.TargetRevision, Digests: map[string]string{}}
	if meta.IsStatusConditionTrue(s.Conditions, rollouts.PolicyGone) {
		return &judge.Rollout{Set: o.Name} // what it says counts no more
	}
	for _, step := range s.Steps {
		out.Steps = append(out.Steps, step.Name)
	}
	for _, f := range s.FailedRevisions {
		out.Failed = append(out.Failed, f.Revision)
	}
	if s.Images != nil {
		for _, of := range s.Images.Templates {
			for _, i := range of.Images {
				out.Digests[of.Template] = i.Digest
			}
		}
	}
	return out
}

// wrongPods is the metric that counts what is wrong, of a DaemonSet.
var wrongPods = regexp.MustCompile(`(?m)^everynode_beside_wrong_pods\{daemonset="(\w+)",namespace="default"\} (\d+)$`)

// unknownPods is the metric that counts pods of which the webhook could not tell what they are to be.
var unknownPods = regexp.MustCompile(`(?m)^everynode_beside_answers_total\{about="pod",answer="unknown"\} (\d+)$`)

// counts notes once in a second, until the test ends, how many pods of each DaemonSet are wrong as the leader says, and
// where a replica was unsure of a pod.
func (r *round) counts() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	r.t.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		unsure := map[string]int{}
		for ctx.Err() == nil {
			most := map[string]int{}
			for _, at := range r.shows {
				text, _ := answersAt(ctx, at, "/metrics") // It may not run.
				if is := unknownPods.FindStringSubmatch(text); is != nil {
					n, _ := strconv.Atoi(is[1])
					if n > unsure[at] {
						r.add(judge.Entry{Unsure: true})
					}
					unsure[at] = n
				}
				for _, of := range wrongPods.FindAllStringSubmatch(text, -1) {
					n, _ := strconv.Atoi(of[2])
					most[of[1]] = max(most[of[1]], n)
				}
			}
			for set, n := range most {
				r.add(judge.Entry{Counted: &judge.Counted{Set: set, N: n}})
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
}

// reachable reports whether a replica says that it is ready.
func reachable(ctx context.Context, at string) error {
	_, err := answersAt(ctx, at, "/readyz")
	return err
}

// answersAt is what a replica answers.
func answersAt(ctx context.Context, at, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}
