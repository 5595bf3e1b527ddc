"""One module for each way to send mail, and the choice between them."""
