package fit

func (q *Question) devices() DeviceQuestion {
	if !q.askedDevices {
		q.askedDevices = true
		if q.cluster.devices != nil && q.pod.Object != nil {
			q.deviceQuestion = q.cluster.devices.Ask(q.pod.Object)
		}
	}
	return q.deviceQuestion
}

// checkDevices: the node must be within reach of the devices that the pod's claims have, and have such as they lack.
func checkDevices(q *Question, node *trialNode) []Reason {
	asked := q.devices()
	if asked == nil {
		return nil
	}
	if text := asked.Missing(node.Object()); text != "" {
		return fails(DynamicResources, text, "", true)
	}
	return nil
}
