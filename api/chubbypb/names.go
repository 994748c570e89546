package chubbypb

// FormerName returns the full name that v0.1.0 has for a method which has another name today, given in full; "" for all
// other methods. Masters serve it by both names. The library calls it by its former name, which masters of v0.1.0 serve,
// too, until no cell of that version is upgraded to the next one.
func FormerName(method string) string {
	if method == Chubby_CloseHandle_FullMethodName {
		return "/" + Chubby_ServiceDesc.ServiceName + "/Close"
	}
	return ""
}
