"""Battery life before a deployment, and the model beside published figures."""
