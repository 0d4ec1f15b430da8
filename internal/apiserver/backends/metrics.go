package backends

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// unavailable is for alerts: a server of others that does not answer holds up the end of
// namespaces, among other things.
var unavailable = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name: "everynode_apiservice_unavailable", StabilityLevel: metrics.ALPHA,
	Help: "1 for an APIService whose server does not answer, 0 for one whose server does.",
}, []string{"name"})

func init() { legacyregistry.MustRegister(unavailable) }

func setAvailability(name string, c *apiregistrationv1.APIServiceCondition) {
	value := 1.0
	if c.Status == apiregistrationv1.ConditionTrue {
		value = 0
	}
	unavailable.WithLabelValues(name).Set(value)
}

func forgetAvailability(name string) { unavailable.DeleteLabelValues(name) }
