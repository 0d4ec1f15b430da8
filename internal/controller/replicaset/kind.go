package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/loop/podwriter"
)

// kind is one of the kinds that are kept. All is done with ReplicaSets: a ReplicationController is seen as one.
type kind struct {
	gvk schema.GroupVersionKind
	// key is what logs call a set.
	key    string
	object func() client.Object
	// set sees an object as a ReplicaSet, and original is for events what that was before.
	set      func(client.Object) *appsv1.ReplicaSet
	original func(*appsv1.ReplicaSet) client.Object
	list     func(context.Context, client.Reader, ...client.ListOption) ([]*appsv1.ReplicaSet, error)
	writer   func(kubernetes.Interface) writer
	// noTerminating says that its status has no number of pods that are on their way out.
	noTerminating bool
}

var replicaSets = kind{
	gvk: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), key: "replicaSet",
	object:   func() client.Object { return &appsv1.ReplicaSet{} },
	set:      func(o client.Object) *appsv1.ReplicaSet { return o.(*appsv1.ReplicaSet) },
	original: func(set *appsv1.ReplicaSet) client.Object { return set },
	list: func(ctx context.Context, r client.Reader, options ...client.ListOption) (out []*appsv1.ReplicaSet, err error) {
		var all appsv1.ReplicaSetList
		err = r.List(ctx, &all, options...)
		for i := range all.Items {
			out = append(out, &all.Items[i])
		}
		return out, err
	},
	writer: func(c kubernetes.Interface) writer { return clientWriter{podwriter.Writer{Client: c}} },
}

var replicationControllers = kind{
	gvk: corev1.SchemeGroupVersion.WithKind("ReplicationController"), key: "replicationController",
	object: func() client.Object { return &corev1.ReplicationController{} },
	set:    func(o client.Object) *appsv1.ReplicaSet { return asSet(o.(*corev1.ReplicationController)) },
	original: func(set *appsv1.ReplicaSet) client.Object {
		return &corev1.ReplicationController{ObjectMeta: set.ObjectMeta}
	},
	list: func(ctx context.Context, r client.Reader, options ...client.ListOption) (out []*appsv1.ReplicaSet, err error) {
		var all corev1.ReplicationControllerList
		err = r.List(ctx, &all, options...)
		for i := range all.Items {
			out = append(out, asSet(&all.Items[i]))
		}
		return out, err
	},
	writer:        func(c kubernetes.Interface) writer { return replicationWriter{podwriter.Writer{Client: c}} },
	noTerminating: true,
}

// asSet sees a ReplicationController as the ReplicaSet that wants the same. What they share is not copied.
func asSet(c *corev1.ReplicationController) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{
		ObjectMeta: c.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        c.Spec.Replicas,
			MinReadySeconds: c.Spec.MinReadySeconds,
			Selector:        &metav1.LabelSelector{MatchLabels: c.Spec.Selector},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: c.Status.Replicas, FullyLabeledReplicas: c.Status.FullyLabeledReplicas,
			ReadyReplicas:     c.Status.ReadyReplicas,
			AvailableReplicas: c.Status.AvailableReplicas, ObservedGeneration: c.Status.ObservedGeneration,
		},
	}
	if c.Spec.Template != nil {
		set.Spec.Template = *c.Spec.Template
	}
	for _, condition := range c.Status.Conditions {
		set.Status.Conditions = append(set.Status.Conditions, appsv1.ReplicaSetCondition{
			Type:               appsv1.ReplicaSetConditionType(condition.Type),
			Status:             condition.Status,
			LastTransitionTime: condition.LastTransitionTime,
			Reason:             condition.Reason,
			Message:            condition.Message,
		})
	}
	return set
}

// withStatus is the ReplicationController that a set stands for, as its status subresource takes it.
func withStatus(set *appsv1.ReplicaSet) *corev1.ReplicationController {
	s := &set.Status
	out := &corev1.ReplicationController{ObjectMeta: set.ObjectMeta, Status: corev1.ReplicationControllerStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
		AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
	}}
	for _, condition := range s.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, corev1.ReplicationControllerCondition{
			Type:               corev1.ReplicationControllerConditionType(condition.Type),
			Status:             condition.Status,
			LastTransitionTime: condition.LastTransitionTime,
			Reason:             condition.Reason,
			Message:            condition.Message,
		})
	}
	return out
}

// clientWriter is the writer of ReplicaSets.
type clientWriter struct{ podwriter.Writer }

// GetSet implements writer.
func (w clientWriter) GetSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return w.Client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// UpdateStatus implements writer.
func (w clientWriter) UpdateStatus(ctx context.Context, set *appsv1.ReplicaSet) error {
	_, err := w.Client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	return err
}

// replicationWriter is the writer of ReplicationControllers.
type replicationWriter struct{ podwriter.Writer }

// GetSet implements writer.
func (w replicationWriter) GetSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	found, err := w.Client.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return asSet(found), nil
}

// UpdateStatus implements writer.
func (w replicationWriter) UpdateStatus(ctx context.Context, set *appsv1.ReplicaSet) error {
	_, err := w.Client.CoreV1().ReplicationControllers(set.Namespace).UpdateStatus(
		ctx, withStatus(set), metav1.UpdateOptions{},
	)
	return err
}
