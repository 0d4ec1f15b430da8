package daemonset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/table"
)

var printer = table.Of(row,
	table.Name,
	table.Column{Name: "Desired", Type: "integer", Description: "Nodes that should run the daemon pod."},
	table.Column{
		Name:        "Current",
		Type:        "integer",
		Description: "Nodes that should run the daemon pod and have at least one.",
	},
	table.Column{
		Name:        "Ready",
		Type:        "integer",
		Description: "Nodes that should run the daemon pod and have a ready one.",
	},
	table.Column{Name: "Up-to-date", Type: "integer", Description: "Nodes that run a pod of the current template."},
	table.Column{
		Name:        "Available",
		Type:        "integer",
		Description: "Nodes whose daemon pod has been ready for minReadySeconds.",
	},
	table.Column{Name: "Node Selector", Description: "Labels that a node must have."},
	table.Age,
	table.Column{Name: "Containers", Wide: true, Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Wide: true, Description: "Images of the containers in the template."},
	table.Column{Name: "Selector", Wide: true, Description: "Selector of the pods that belong to the DaemonSet."},
)

func row(d *appsv1.DaemonSet, now time.Time) []any {
	names, images := podspec.Summary(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name,
		int64(d.Status.DesiredNumberScheduled), int64(d.Status.CurrentNumberScheduled), int64(d.Status.NumberReady),
		int64(d.Status.UpdatedNumberScheduled), int64(d.Status.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector),
		table.Since(d.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}
