package plan

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// TestScripts runs testdata/scripts/*.txt. Sets are called web-IMAGE in them. The verbs:
//
//	deployment [replicas=3] [image=v1] [surge=1] [unavailable=1] [recreate|rolling]
//	           [paused|resumed] [deadline=600] [history=10] [minReady=0] [deleting]
//	           [annotation=KEY:VALUE]           changes what is named
//	decide                                      prints the plan and does it
//	settle                                      decides, with all pods available at
//	                                            once, until nothing is left to do;
//	                                            prints what changed in each step
//	report IMAGE available=N                    the set has its pods, N serve
//	failure IMAGE TEXT | recovery IMAGE         the set cannot make pods, or can again
//	pod IMAGE PHASE | no-pods                   a pod of the set, for recreate
//	scale IMAGE replicas=N                      somebody scales the set by hand
//	tick DURATION
//	sets                                        prints the sets
//	conditions                                  prints the Deployment's
//	collided | not-created IMAGE TEXT           prints the status after that
//
// Run with -rewrite to write the outputs; commit only what you understand.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{newWorld()}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.readable(s.run(d))
			if out == "" {
				return "ok\n"
			}
			return out
		})
	})
}

type script struct{ *world }

func (s *script) run(d *datadriven.TestData) string {
	words, values := []string{}, map[string]string{}
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			words = append(words, a.Key)
		} else {
			values[a.Key] = strings.Join(a.Vals, ",")
		}
	}
	switch d.Cmd {
	case "deployment":
		s.change(words, values)
	case "decide":
		return show(s.decide())
	case "settle":
		return s.settle()
	case "report":
		s.report(words[0], number(values["available"]))
	case "failure":
		s.set(words[0]).Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: words[1]}}
	case "recovery":
		s.set(words[0]).Status.Conditions = nil
	case "pod":
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set(words[0]), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}}
		p.Status.Phase = corev1.PodPhase(words[1])
		s.pods = append(s.pods, p)
	case "no-pods":
		s.pods = nil
	case "scale":
		s.set(words[0]).Spec.Replicas = ptr.To(number(values["replicas"]))
	case "tick":
		step, err := time.ParseDuration(words[0])
		if err != nil {
			panic(err)
		}
		s.now = s.now.Add(step)
	case "sets":
		return s.show()
	case "conditions":
		return conditions(s.d.Status.Conditions)
	case "collided":
		s.d.Status = Collided(s.input())
		return fmt.Sprintf("collisions=%d\n", *s.d.Status.CollisionCount)
	case "not-created":
		return conditions(NotCreated(s.input(), "web-"+words[0], errors.New(words[1])).Conditions)
	default:
		return "unknown verb\n"
	}
	return ""
}

func number(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		panic(err)
	}
	return int32(n)
}

func (s *script) change(words []string, values map[string]string) {
	spec := &s.d.Spec
	s.d.Generation++
	for _, word := range words {
		switch word {
		case "recreate":
			spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		case "rolling":
			spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}}
		case "paused", "resumed":
			spec.Paused = word == "paused"
		case "deleting":
			s.d.DeletionTimestamp = ptr.To(metav1.NewTime(s.now))
		default:
			panic("unknown word " + word)
		}
	}
	for key, value := range values {
		switch key {
		case "replicas":
			spec.Replicas = ptr.To(number(value))
		case "image":
			spec.Template.Spec.Containers[0].Image = value
		case "surge":
			spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.Parse(value))
		case "unavailable":
			spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.Parse(value))
		case "deadline":
			spec.ProgressDeadlineSeconds = ptr.To(number(value))
		case "history":
			spec.RevisionHistoryLimit = ptr.To(number(value))
		case "minReady":
			spec.MinReadySeconds = number(value)
		case "annotation":
			k, v, _ := strings.Cut(value, ":")
			if s.d.Annotations == nil {
				s.d.Annotations = map[string]string{}
			}
			s.d.Annotations[k] = v
		default:
			panic("unknown field " + key)
		}
	}
}

// settle goes on until a plan writes nothing.
func (s *script) settle() string {
	var out strings.Builder
	for range 100 {
		for _, set := range s.sets {
			s.report(image(set), *set.Spec.Replicas)
		}
		p := s.decide()
		out.WriteString(s.readable(actions(p)))
		if p.Create == nil && len(p.Update)+len(p.Delete) == 0 && !p.Changed {
			return out.String() + conditions(s.d.Status.Conditions)
		}
	}
	return out.String() + "it never ends\n"
}

func actions(p Plan) string {
	var out strings.Builder
	if c := p.Create; c != nil {
		fmt.Fprintf(&out, "create %s with %d pods, revision %s\n", c.Name, *c.Spec.Replicas, c.Annotations[RevisionAnnotation])
	}
	for _, u := range p.Update {
		if from, to := *u.Before.Spec.Replicas, *u.Set.Spec.Replicas; from != to {
			fmt.Fprintf(&out, "scale %s from %d to %d: %s\n", u.Set.Name, from, to, u.Reason)
		} else {
			fmt.Fprintf(&out, "annotate %s: %s\n", u.Set.Name, u.Reason)
		}
	}
	for _, s := range p.Delete {
		fmt.Fprintf(&out, "delete %s\n", s.Name)
	}
	return out.String()
}

func show(p Plan) string {
	var out strings.Builder
	out.WriteString(actions(p))
	s := p.Status
	fmt.Fprintf(&out, "status: replicas=%d updated=%d ready=%d available=%d unavailable=%d", s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas)
	if !p.Changed {
		out.WriteString(", no news")
	}
	fmt.Fprintf(&out, "\nbecause %s\n", p.Reason)
	if !p.Next.IsZero() {
		fmt.Fprintf(&out, "again at %s\n", p.Next.Format(time.TimeOnly))
	}
	return out.String()
}

func conditions(list []appsv1.DeploymentCondition) string {
	var lines []string
	for _, c := range list {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s (since %s, said at %s)\n", c.Type, c.Status, c.Reason, c.Message,
			c.LastTransitionTime.UTC().Format(time.TimeOnly), c.LastUpdateTime.UTC().Format(time.TimeOnly)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (w *world) show() string {
	var out strings.Builder
	for _, s := range w.sets {
		var notes []string
		for key, value := range s.Annotations {
			notes = append(notes, key[strings.LastIndexByte(key, '/')+1:]+"="+value)
		}
		slices.Sort(notes)
		fmt.Fprintf(&out, "%s: %d of %d available, %s\n", s.Name, s.Status.AvailableReplicas, *s.Spec.Replicas, strings.Join(notes, " "))
	}
	return out.String()
}
