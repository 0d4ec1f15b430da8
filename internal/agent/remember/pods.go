package remember

import (
	"encoding/json"
	"errors"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Pods is what a node needs to start its pods as they were.
type Pods struct {
	Pods       []Pod
	ConfigMaps []*corev1.ConfigMap
	Secrets    []*corev1.Secret
	Tokens     []Token
	// Handlers are what the runtime calls the RuntimeClasses that pods name.
	Handlers map[string]string
}

// Pod is a pod as the API had it last.
type Pod struct {
	Pod *corev1.Pod `json:"pod"`
	// Ended is how it ended, if it did; the API may not know yet.
	Ended *corev1.PodStatus `json:"ended,omitempty"`
}

// Token is a service account's token that a pod has in a volume.
type Token struct {
	Pod      types.UID `json:"pod"`
	Audience string    `json:"audience,omitempty"`
	Seconds  int64     `json:"seconds"`
	Text     string    `json:"text"`
	Issued   time.Time `json:"issued"`
	Ends     time.Time `json:"ends"`
}

// podLine is a line of the file: one of the objects.
type podLine struct {
	Pod       *Pod              `json:"pod,omitempty"`
	ConfigMap *corev1.ConfigMap `json:"configMap,omitempty"`
	Secret    *corev1.Secret    `json:"secret,omitempty"`
	Token     *Token            `json:"token,omitempty"`
	Handlers  map[string]string `json:"handlers,omitempty"`
}

// ReadPods reads the file; nil if there is none. The error says which file is broken, and why.
func ReadPods(path string, seal Seal) (*Pods, error) {
	pods := &Pods{}
	there, err := readLines(path, "its pods", seal, pods.add)
	if err != nil || !there {
		return nil, err
	}
	return pods, nil
}

func (p *Pods) add(raw []byte) (bool, error) {
	var l podLine
	if err := json.Unmarshal(raw, &l); err != nil {
		return false, err
	}
	switch {
	case l.Pod != nil:
		if l.Pod.Pod == nil || l.Pod.Pod.UID == "" {
			return false, errors.New("a pod without a UID")
		}
		p.Pods = append(p.Pods, *l.Pod)
	case l.ConfigMap != nil:
		p.ConfigMaps = append(p.ConfigMaps, l.ConfigMap)
	case l.Secret != nil:
		p.Secrets = append(p.Secrets, l.Secret)
	case l.Token != nil:
		p.Tokens = append(p.Tokens, *l.Token)
	case l.Handlers != nil:
		p.Handlers = l.Handlers
	default:
		return false, nil
	}
	return true, nil
}

// lines are what the file holds of it.
func (p *Pods) lines() iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range p.Pods {
			if !yield(podLine{Pod: &p.Pods[i]}) {
				return
			}
		}
		for _, c := range p.ConfigMaps {
			if !yield(podLine{ConfigMap: c}) {
				return
			}
		}
		for _, s := range p.Secrets {
			if !yield(podLine{Secret: s}) {
				return
			}
		}
		if len(p.Handlers) > 0 && !yield(podLine{Handlers: p.Handlers}) {
			return
		}
		for i := range p.Tokens {
			if !yield(podLine{Token: &p.Tokens[i]}) {
				return
			}
		}
	}
}

// NewPodKeeper returns a keeper of the file at that path, and what the file holds, nil if nothing. Now says what it is
// to hold. The error is as NewKeeper's.
func NewPodKeeper(path string, seal Seal, now func() *Pods, clk clock.WithTicker) (*PodKeeper, *Pods, error) {
	known, err := ReadPods(path, seal)
	// One that is not encrypted and should be is replaced and not put aside: there may be Secrets in it.
	k := &PodKeeper{
		file: file{
			path:    path,
			what:    "its pods",
			broken:  err != nil && !errors.Is(err, errNotSealed),
			clock:   clk,
			news:    make(chan struct{}, 1),
			trifles: make(chan struct{}, 1),
			replace: func() error { return writeLines(path, seal, now().lines()) },
		},
	}
	return k, known, errors.Join(err, clearUnfinished(path))
}

// PodKeeper writes down what a node needs to start its pods.
type PodKeeper struct{ file file }
