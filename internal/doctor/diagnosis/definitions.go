package diagnosis

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/newer"
)

// outdated says of which fields of Everynode's kinds the API knows nothing: it drops what is written there.
func outdated(f *findings, c *Cluster) {
	if len(c.Lacking) > 0 {
		f.add(Problem, c.Server, c.Program+" controller --print-crds | "+c.Kubectl+" apply -f -",
			"its definitions of Everynode's kinds are older than this program, and drop what is written into %s",
			some(c.Lacking))
	}
}

// strange says which objects hold what this program, or the server, does not know.
func strange(f *findings, c *Cluster) {
	strangeOf(f, "rolloutpolicy", c.Policies)
	strangeOf(f, "daemonsetrollout", c.Rollouts)
	strangeOf(f, "daemonsetvariant", c.Variants)
	strangeOf(f, "nodestartup", c.Startups)
}

func strangeOf[T metav1.Object](f *findings, kind string, all []T) {
	for _, o := range all {
		if err := newer.Check(o); err != nil {
			f.add(Problem, kind+"/"+o.GetNamespace()+"/"+o.GetName(),
				"everynode version    # compare those of the servers, of the controller, and yours",
				"a program as old as this one does not follow it: %s", err)
		}
	}
}
