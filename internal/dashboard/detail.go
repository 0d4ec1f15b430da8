package dashboard

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/why"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// nodeDetail is what the page shows of one node.
type nodeDetail struct {
	*why.NodeReport
	Conditions  []corev1.NodeCondition `json:"conditions"`
	Labels      map[string]string      `json:"labels"`
	Taints      []corev1.Taint         `json:"taints"`
	Allocatable corev1.ResourceList    `json:"allocatable"`
	Cordoned    bool                   `json:"cordoned"`
	Pods        []podLine              `json:"pods"`
}

// podLine is one pod of a node.
type podLine struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	Phase      string   `json:"phase"`
	Ready      bool     `json:"ready"`
	Restarts   int32    `json:"restarts"`
	Containers []string `json:"containers"`
}

func (d *Dashboard) node(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	detail := &nodeDetail{Pods: []podLine{}}
	err := d.cluster.look(func(s *survey.Survey, hidden string) (err error) {
		detail.NodeReport, err = why.Node(s, name, nil)
		if err != nil {
			return err
		}
		n := s.Node(name)
		detail.Conditions, detail.Labels, detail.Taints = n.Status.Conditions, n.Labels, n.Spec.Taints
		detail.Allocatable, detail.Cordoned = n.Status.Allocatable, n.Spec.Unschedulable
		for _, p := range s.Pods {
			if p.Spec.NodeName == name {
				detail.Pods = append(detail.Pods, lineOf(p))
			}
		}
		if hidden != "" {
			detail.Missing = append(detail.Missing, hidden)
		}
		return nil
	})
	if err != nil {
		answer(w, nil, err)
		return
	}
	slices.SortFunc(detail.Pods, func(a, b podLine) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range detail.DaemonSets {
		d.config.More(r.Context(), &detail.DaemonSets[i])
	}
	answer(w, detail, nil)
}

func lineOf(p *corev1.Pod) podLine {
	line := podLine{Namespace: p.Namespace, Name: p.Name, Phase: string(p.Status.Phase), Containers: []string{}}
	if p.DeletionTimestamp != nil {
		line.Phase = "Terminating"
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			line.Ready = c.Status == corev1.ConditionTrue
		}
	}
	for i := range p.Spec.Containers {
		line.Containers = append(line.Containers, p.Spec.Containers[i].Name)
	}
	for i := range p.Status.ContainerStatuses {
		line.Restarts += p.Status.ContainerStatuses[i].RestartCount
	}
	return line
}

// why answers where a DaemonSet stands on all nodes, or on those with one verdict.
func (d *Dashboard) why(w http.ResponseWriter, r *http.Request) {
	var report *why.SetReport
	err := d.ofSet(r, func(s *survey.Survey, ds *appsv1.DaemonSet) (err error) {
		report, err = why.Set(s, ds, standing.Verdict(r.URL.Query().Get("verdict")))
		return err
	})
	answer(w, report, err)
}

// ofSet calls f with the DaemonSet that a request is about.
func (d *Dashboard) ofSet(r *http.Request, f func(s *survey.Survey, ds *appsv1.DaemonSet) error) error {
	namespace, name, err := named(r.URL.Query().Get("daemonset"))
	if err != nil {
		return err
	}
	return d.cluster.look(func(s *survey.Survey, _ string) error {
		ds := s.DaemonSet(namespace, name)
		if ds == nil {
			return fmt.Errorf("there is no DaemonSet %s/%s", namespace, name)
		}
		return f(s, ds)
	})
}

// revision is one of a DaemonSet's templates.
type revision struct {
	Number  int64     `json:"number"`
	Hash    string    `json:"hash"`
	Created time.Time `json:"created"`
	Cause   string    `json:"cause,omitempty"`
	// Template is written as YAML, without what every template has.
	Template string `json:"template"`
}

func (d *Dashboard) revisions(w http.ResponseWriter, r *http.Request) {
	out := []revision{}
	err := d.ofSet(r, func(s *survey.Survey, ds *appsv1.DaemonSet) error {
		for _, held := range revisionsOf(s, ds) {
			template, err := history.Template(held)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(template)
			if err != nil {
				return fmt.Errorf("write the template of revision %s: %w", held.Name, err)
			}
			out = append(out, revision{
				Number: held.Revision, Hash: history.HashOf(held), Created: held.CreationTimestamp.UTC(),
				Cause: held.Annotations["kubernetes.io/change-cause"], Template: string(text),
			})
		}
		return nil
	})
	answer(w, out, err)
}

// revisionsOf are a DaemonSet's revisions, the newest first.
func revisionsOf(s *survey.Survey, ds *appsv1.DaemonSet) []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for _, r := range s.Revisions {
		if metav1.IsControlledBy(r, ds) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *appsv1.ControllerRevision) int { return cmp.Compare(b.Revision, a.Revision) })
	return out
}

// mostManifest is how large a manifest to be planned may be.
const mostManifest = 4 << 20

func (d *Dashboard) plan(w http.ResponseWriter, r *http.Request) {
	manifest, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostManifest))
	if err != nil {
		answer(w, nil, fmt.Errorf("read the manifest: %w", err))
		return
	}
	var out struct {
		Forecast any    `json:"forecast"`
		Text     string `json:"text"`
	}
	// Its own survey: the server is asked meanwhile, which may take long.
	out.Forecast, out.Text, err = d.config.Plan(r.Context(), d.cluster.survey(time.Now()), d.cluster.ownKinds().hidden,
		manifest)
	answer(w, out, err)
}

// logTail is how many lines of a log a page is given at the beginning.
const logTail = 200

// logs hands a container's log on, and goes on with what is to come.
func (d *Dashboard) logs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("namespace") == "" || q.Get("pod") == "" {
		answer(w, nil, errors.New("name a namespace and a pod"))
		return
	}
	stream, err := d.core.CoreV1().Pods(q.Get("namespace")).GetLogs(q.Get("pod"), &corev1.PodLogOptions{
		Container: q.Get("container"), Follow: true, TailLines: ptr.To[int64](logTail),
	}).Stream(r.Context())
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer stream.Close()
	stop := context.AfterFunc(r.Context(), func() { _ = stream.Close() })
	defer stop()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush(w)
	relay(w, stream)
}

// longestLine is where a line of a log is broken: a page keeps what it shows, and waits for the end of a line.
const longestLine = 16 << 10

// relay hands a log on, line by line, until it or the page is gone.
func relay(w http.ResponseWriter, stream io.Reader) {
	for lines := bufio.NewReaderSize(stream, longestLine); ; {
		line, err := lines.ReadSlice('\n')
		if _, failed := w.Write(line); failed != nil {
			return
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			_, err = w.Write([]byte{'\n'})
		}
		if err != nil {
			return
		}
		flush(w)
	}
}
